#include "worker/agent/line_splitter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::agent {
namespace {

// Length of the well-formed UTF-8 character at `at` (Unicode, table 3-7); 0: it is not well-formed.
size_t CharacterLength(const std::string& text, size_t at) {
  const auto byte = [&](size_t offset) -> unsigned {
    return at + offset < text.size() ? static_cast<unsigned char>(text[at + offset]) : 0u;
  };
  const auto in = [](unsigned value, unsigned low, unsigned high) { return low <= value && value <= high; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (in(first, 0xc2, 0xdf)) return in(byte(1), 0x80, 0xbf) ? 2 : 0;
  if (in(first, 0xe0, 0xef)) {
    const bool second = in(byte(1), first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return second && in(byte(2), 0x80, 0xbf) ? 3 : 0;
  }
  if (in(first, 0xf0, 0xf4)) {
    const bool second = in(byte(1), first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
    return second && in(byte(2), 0x80, 0xbf) && in(byte(3), 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string ValidUtf8(const std::string& text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterLength(text, at);
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

std::vector<std::string> LineSplitter::Feed(const char* bytes, size_t count) {
  std::vector<std::string> lines;
  while (count > 0) {
    const char* end = static_cast<const char*>(memchr(bytes, '\n', count));
    const size_t length = end == nullptr ? count : end - bytes;
    const size_t taken = std::min(length, kMaxLineBytes - line_.size());
    line_.append(bytes, taken);
    left_out_ += length - taken;
    if (end == nullptr) break;
    lines.push_back(TakeLine());
    bytes += length + 1;
    count -= length + 1;
  }
  return lines;
}

std::vector<std::string> LineSplitter::Finish() {
  if (line_.empty()) return {};
  return {TakeLine()};
}

std::string LineSplitter::TakeLine() {
  std::string line = std::exchange(line_, {});
  const size_t left_out = std::exchange(left_out_, 0);
  if (left_out == 0 && !line.empty() && line.back() == '\r') line.pop_back();
  line = ValidUtf8(line);
  if (left_out > 0) absl::StrAppend(&line, " [", left_out, " more bytes]");
  return line;
}

}  // namespace muster::agent
