#include "common/utf8/utf8.h"

namespace muster {

size_t Utf8CharacterLength(const std::string& text, size_t at) {
  const auto byte = [&text, at](size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const unsigned first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) > 0x9f;
  const bool beyond = first == 0xf4 && byte(1) > 0x8f;
  return overlong || surrogate || beyond ? 0 : length;
}

size_t ValidUtf8Prefix(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = Utf8CharacterLength(text, at);
    if (length == 0) return at;
    at += length;
  }
  return at;
}

std::string ValidUtf8(const std::string& text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8CharacterLength(text, at);
    if (length == 0) {
      valid += "\xef\xbf\xbd";
      ++at;
      continue;
    }
    valid.append(text, at, length);
    at += length;
  }
  return valid;
}

}  // namespace muster
