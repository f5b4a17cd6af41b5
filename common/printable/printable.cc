#include "common/printable/printable.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/utf8/utf8.h"

namespace muster {
namespace {

uint32_t CodeOf(const std::string& text, size_t at, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(uint8_t(text[at + i])); };
  if (length == 1) return byte(0);
  uint32_t code = byte(0) & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3f);
  return code;
}

bool IsHarmful(uint32_t code) {
  if (code < 0x20) return code != '\n' && code != '\t';
  return (code >= 0x7f && code < 0xa0) ||       // DEL, and the second set of control characters
         code == 0x2028 || code == 0x2029 ||    // end of a line, of a paragraph
         (code >= 0x202a && code <= 0x202e) ||  // embeddings and overrides of the direction
         (code >= 0x2066 && code <= 0x2069);    // isolates
}

// Returns whether the rest of the text can be the beginning of a character.
bool IsCutOff(const std::string& text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  const size_t length = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first > 0xf4 || text.size() - at >= length) return false;
  for (size_t i = at + 1; i < text.size(); ++i) {
    if ((text[i] & 0xc0) != 0x80) return false;
  }
  return true;
}

}  // namespace

size_t AppendPrintable(const std::string& text, Follows follows, std::string* out) {
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '\r') {
      if (at + 1 == text.size() && follows == Follows::kMore) return at;
      if (at + 1 < text.size() && text[at + 1] == '\n') {
        *out += "\r\n";
        at += 2;
        continue;
      }
    }
    const size_t length = Utf8CharacterLength(text, at);
    if (length == 0) {
      if (follows == Follows::kMore && IsCutOff(text, at)) return at;
      absl::StrAppendFormat(out, "\\x%02x", static_cast<uint8_t>(text[at]));
      ++at;
      continue;
    }
    const uint32_t code = CodeOf(text, at, length);
    if (!IsHarmful(code)) {
      out->append(text, at, length);
    } else {
      absl::StrAppendFormat(out, code < 0x20 ? "\\x%02x" : "\\u%04x", code);
    }
    at += length;
  }
  return at;
}

std::string PrintableLine(const std::string& text) {
  std::string out;
  AppendPrintable(text, Follows::kNothing, &out);
  return absl::StrReplaceAll(out, {{"\r", "\\x0d"}, {"\n", "\\n"}, {"\t", "\\t"}});
}

std::string WhoAsked(const std::string& requester, const std::string& label) {
  if (label.empty() || label == requester) return requester;
  // The requester is Muster itself.
  if (requester.empty()) return label;
  return absl::StrCat(requester, " (label '", absl::Utf8SafeCEscape(label), "')");
}

}  // namespace muster
