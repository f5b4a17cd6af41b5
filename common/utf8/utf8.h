// UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF. Texts in Protobuf
// messages must be valid UTF-8: a peer refuses a message with any other text.
#ifndef MUSTER_COMMON_UTF8_UTF8_H_
#define MUSTER_COMMON_UTF8_UTF8_H_

#include <cstddef>
#include <string>

namespace muster {

// The bytes of the valid character that begins at text[at]; 0: none begins there.
size_t Utf8CharacterLength(const std::string& text, size_t at);

// The number of bytes from the start that are complete, valid characters; text.size() if all are.
size_t ValidUtf8Prefix(const std::string& text);

// `text` with every byte that is not part of a valid character replaced by U+FFFD.
std::string ValidUtf8(const std::string& text);

}  // namespace muster

#endif  // MUSTER_COMMON_UTF8_UTF8_H_
