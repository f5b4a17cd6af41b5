#include "common/tokenizer/hugging_face/unicode.h"

#include <utf8proc.h>

#include <cstdlib>

namespace muster::tokenizer {
namespace {

const utf8proc_uint8_t* Bytes(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The bytes of the longest beginning of a character at this position, at least 1 (Unicode, chapter
// 3.9, "maximal subpart").
size_t BrokenLength(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(at);
  const size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || at + 1 >= bytes.size()) return 1;
  const unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(at + 1) < least || byte(at + 1) > most) return 1;
  size_t length = 2;
  while (length < wanted && at + length < bytes.size() && Continues(bytes[at + length])) ++length;
  return length;
}

}  // namespace

Character CharacterAt(std::string_view text, size_t position) {
  utf8proc_int32_t code = 0;
  const auto bytes = utf8proc_iterate(Bytes(text) + position,
                                      static_cast<utf8proc_ssize_t>(text.size() - position), &code);
  return {static_cast<uint32_t>(code), static_cast<size_t>(bytes)};
}

Character CharacterBefore(std::string_view text, size_t position) {
  do {
    --position;
  } while (position > 0 && Continues(text[position]));
  return CharacterAt(text, position);
}

bool IsSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsNumber(uint32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

void AppendCharacter(uint32_t code, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::string Normalized(std::string_view text, NormalForm form) {
  const bool composes = form == NormalForm::kC || form == NormalForm::kKC;
  const bool compatible = form == NormalForm::kKC || form == NormalForm::kKD;
  const int options = UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* made = nullptr;
  const auto length = utf8proc_map(Bytes(text), static_cast<utf8proc_ssize_t>(text.size()), &made,
                                   static_cast<utf8proc_option_t>(options));
  // Valid UTF-8 fails only without memory.
  if (length < 0) std::abort();
  std::string normalized(reinterpret_cast<const char*>(made), static_cast<size_t>(length));
  std::free(made);
  return normalized;
}

std::string Lossy(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    utf8proc_int32_t code = 0;
    const auto length = utf8proc_iterate(Bytes(bytes) + at,
                                         static_cast<utf8proc_ssize_t>(bytes.size() - at), &code);
    if (length > 0) {
      text.append(bytes.substr(at, static_cast<size_t>(length)));
      at += static_cast<size_t>(length);
    } else {
      AppendCharacter(0xFFFD, &text);
      at += BrokenLength(bytes, at);
    }
  }
  return text;
}

}  // namespace muster::tokenizer
