#include "client/cli/terminal/printable.h"

#include "absl/strings/str_format.h"

namespace muster::cli {
namespace {

std::string WithoutControl(const std::string& text, bool one_line) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == '\n' || byte == '\t') {
      out += one_line ? (byte == '\n' ? "\\n" : "\\t") : std::string(1, text[i]);
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F
      absl::StrAppendFormat(&out, "\\u%04x", next);
      ++i;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

}  // namespace

std::string Printable(const std::string& text) { return WithoutControl(text, /*one_line=*/false); }
std::string PrintableLine(const std::string& text) {
  return WithoutControl(text, /*one_line=*/true);
}

}  // namespace muster::cli
