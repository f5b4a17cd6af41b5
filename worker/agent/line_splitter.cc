#include "worker/agent/line_splitter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/utf8/utf8.h"

namespace muster::agent {
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
