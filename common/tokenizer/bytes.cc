#include "common/tokenizer/bytes.h"

#include "common/utf8/utf8.h"

namespace muster::tokenizer {

std::vector<uint32_t> TokensOfBytes(const std::string& text) {
  std::vector<uint32_t> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::string TextOfBytes(const std::vector<int64_t>& tokens) {
  constexpr char kInNoCharacter = '\xff';
  std::string bytes;
  bytes.reserve(tokens.size());
  for (const int64_t token : tokens) {
    const bool is_byte = token >= 0 && token < kBytes;
    bytes.push_back(is_byte ? static_cast<char>(token) : kInNoCharacter);
  }
  return ValidUtf8(bytes);
}

}  // namespace muster::tokenizer
