#include "worker/agent/log_queue.h"

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

void LogQueue::Push(const WorkerId& worker, std::vector<std::string> lines) {
  absl::MutexLock lock(&mutex_);
  for (std::string& text : lines) {
    ++lines_;
    bytes_ += text.size();
    workers_[worker].lines.push_back({.sequence = ++pushed_, .text = std::move(text)});
    while (lines_ > options_.max_lines || bytes_ > options_.max_bytes) {
      Pending& oldest = Oldest()->second;
      Pop(oldest);
      ++oldest.dropped;
    }
  }
}

std::optional<LogQueue::Batch> LogQueue::Take() {
  absl::MutexLock lock(&mutex_);
  if (workers_.empty()) return std::nullopt;
  const auto oldest = Oldest();
  return TakeFrom(oldest != workers_.end() ? oldest : workers_.begin());
}

std::optional<LogQueue::Batch> LogQueue::TakeFrom(const WorkerId& worker) {
  absl::MutexLock lock(&mutex_);
  const auto entry = workers_.find(worker);
  if (entry == workers_.end()) return std::nullopt;
  return TakeFrom(entry);
}

// The worker of the oldest line; end() if there are only dropped lines. A host has few workers, so
// a search is fast enough.
LogQueue::Workers::iterator LogQueue::Oldest() {
  auto oldest = workers_.end();
  for (auto entry = workers_.begin(); entry != workers_.end(); ++entry) {
    const Pending& pending = entry->second;
    if (pending.lines.empty()) continue;
    if (oldest == workers_.end() ||
        pending.lines.front().sequence < oldest->second.lines.front().sequence) {
      oldest = entry;
    }
  }
  return oldest;
}

LogQueue::Batch LogQueue::TakeFrom(Workers::iterator entry) {
  Pending& pending = entry->second;
  Batch batch{.worker = entry->first, .lines = {}};
  if (pending.dropped > 0) {
    batch.lines.push_back(
        absl::StrCat("[muster-agent: ", std::exchange(pending.dropped, 0),
                     " lines are missing here: the coordinator was away, or too slow]"));
  }
  size_t bytes = 0;
  while (!pending.lines.empty() && batch.lines.size() < options_.batch_lines &&
         (bytes == 0 || bytes + pending.lines.front().text.size() <= options_.batch_bytes)) {
    batch.lines.push_back(Pop(pending).text);
    bytes += batch.lines.back().size() + 1;
  }
  if (pending.lines.empty()) workers_.erase(entry);
  return batch;
}

LogQueue::Line LogQueue::Pop(Pending& pending) {
  Line line = std::move(pending.lines.front());
  pending.lines.pop_front();
  --lines_;
  bytes_ -= line.text.size();
  return line;
}

}  // namespace muster::agent
