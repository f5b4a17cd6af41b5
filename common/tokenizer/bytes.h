// The tokenizer `bytes` of `muster data pack --tokenizer bytes`: each byte of a text is a token. A
// model for it has a vocabulary of 256 tokens or more. Pure.
#ifndef MUSTER_COMMON_TOKENIZER_BYTES_H_
#define MUSTER_COMMON_TOKENIZER_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace muster::tokenizer {

// The number of tokens. A smaller vocabulary has no token for some byte.
inline constexpr uint32_t kBytes = 256;

std::vector<uint32_t> TokensOfBytes(const std::string& text);

// Valid UTF-8. Bytes that are not UTF-8, and tokens that are not bytes, become U+FFFD.
std::string TextOfBytes(const std::vector<int64_t>& tokens);

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_BYTES_H_
