// UTF-8, as RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF. Protobuf texts must be
// such.
#ifndef MUSTER_COMMON_JOBFILE_UTF8_H_
#define MUSTER_COMMON_JOBFILE_UTF8_H_

#include <cstddef>
#include <string>

namespace muster::jobfile {

// How many bytes from the start are whole, valid characters; text.size() where all are.
inline size_t ValidUtf8Prefix(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto byte = [&text, at](size_t i) -> unsigned {
      return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
    };
    const unsigned first = byte(0);
    const size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3
                          : first < 0xf5 ? 4 : 0;
    if (length == 0) return at;
    for (size_t i = 1; i < length; ++i) {
      if ((byte(i) & 0xc0) != 0x80) return at;
    }
    if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
        (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) {
      return at;
    }
    at += length;
  }
  return at;
}

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_UTF8_H_
