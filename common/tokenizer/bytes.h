// The tokenizer `bytes`: each byte of a text is a token, as `muster data pack --tokenizer bytes`
// makes them. A model that uses it has a vocabulary of 256 tokens or more. Pure.
#ifndef MUSTER_COMMON_TOKENIZER_BYTES_H_
#define MUSTER_COMMON_TOKENIZER_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace muster::tokenizer {

// A vocabulary of fewer tokens has no token for some byte.
inline constexpr uint32_t kBytes = 256;

std::vector<uint32_t> TokensOfBytes(const std::string& text);

// Valid UTF-8: what is none, and tokens that are no bytes, become U+FFFD.
std::string TextOfBytes(const std::vector<int64_t>& tokens);

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_BYTES_H_
