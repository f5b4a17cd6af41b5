#include "worker/tensorboard/backlog.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

namespace muster::tensorboard {

void Backlog::Begin(int64_t step, std::vector<Entry> carried) {
  newest_step_ = std::max(newest_step_, step);
  std::deque<Held> later = std::exchange(held_, {});
  bytes_ = 0;
  begin_ = whole_from_ = step;
  for (Entry& entry : carried) Push(std::move(entry));
  for (Held& held : later) Add(std::move(held.entry));
}

void Backlog::Push(Entry entry) {
  bytes_ += SizeOf(entry);
  held_.push_back({next_++, std::move(entry)});
}

void Backlog::Add(Entry entry) {
  const bool number = std::holds_alternative<double>(entry.value);
  newest_step_ = std::max(newest_step_, entry.step);
  for (auto held = held_.rbegin(); held != held_.rend(); ++held) {
    // Numbers are held in the order of their steps. Between them may be marks that are much older,
    // such as that of a checkpoint whose writing took many steps.
    const bool ordered = std::holds_alternative<double>(held->entry.value);
    if (ordered && held->entry.step < entry.step - kLateSteps) break;
    if (held->entry.step != entry.step || held->entry.tag != entry.tag) continue;
    if (!number && held->entry.value != entry.value) continue;
    if (!number) return;
    if (held->number <= taken_ && entry.step >= whole_from_) {
      rewrite_from_ = std::min(rewrite_from_.value_or(entry.step), entry.step);
      rewritten_through_ = next_;
    }
    bytes_ -= SizeOf(held->entry);
    held_.erase(std::next(held).base());
    break;
  }
  Push(std::move(entry));
  while (bytes_ > limit_ && held_.size() > 1) {
    const int64_t step = held_.front().entry.step;
    while (held_.size() > 1 && held_.front().entry.step <= step) Pop();
  }
}

void Backlog::Pop() {
  const Held& oldest = held_.front();
  if (oldest.number > durable_) Count(oldest.entry, &dropped_);
  whole_from_ = std::max(whole_from_, oldest.entry.step + 1);
  bytes_ -= SizeOf(oldest.entry);
  held_.pop_front();
}

Backlog::Iterator Backlog::After(uint64_t number) const {
  return std::upper_bound(held_.begin(), held_.end(), number,
                          [](uint64_t before, const Held& held) { return before < held.number; });
}

void Backlog::Fill(uint64_t had, Batch* batch) {
  auto held = After(had);
  if (batch->start.has_value()) {
    for (auto again = held_.begin(); again != held; ++again) {
      if (again->entry.step >= *batch->start) batch->entries.push_back(again->entry);
    }
  }
  size_t bytes = 0;
  for (; held != held_.end() && bytes < batch_; ++held) {
    bytes += SizeOf(held->entry);
    batch->entries.push_back(held->entry);
  }
  batch->newest = newest();
  batch->through = taken_ = held == held_.end() ? newest() : std::prev(held)->number;
}

Backlog::Batch Backlog::Next() {
  Batch batch;
  if (rewrite_from_.has_value()) batch.start = std::max(*rewrite_from_, whole_from_);
  Fill(written_, &batch);
  return batch;
}

Backlog::Batch Backlog::ForNewFile() {
  const auto missing = NotDurable();
  int64_t start = whole_from_;
  if (missing.has_value()) start = std::max(start, missing->first);
  // Nothing of this session was durable: the files end with an earlier one.
  if (durable_ == 0) start = begin_;
  Batch batch;
  batch.start = start;
  batch.new_file = true;
  // What is durable and of these steps comes again at once, because the START takes it away.
  Fill(durable_, &batch);
  return batch;
}

void Backlog::Written(const Batch& batch) {
  written_ = batch.new_file ? batch.through : std::max(written_, batch.through);
  // The file has what was replaced before this batch was made either no more, or not yet.
  if (batch.start.has_value() && rewritten_through_ <= batch.newest) rewrite_from_.reset();
}

void Backlog::Synced() {
  durable_ = written_;
  while (!held_.empty() && held_.front().number <= durable_ &&
         held_.front().entry.step < newest_step_ - kLateSteps) {
    Pop();
  }
}

size_t Backlog::unsynced() const {
  size_t bytes = 0;
  for (auto held = After(durable_); held != held_.end() && held->number <= written_; ++held) {
    bytes += SizeOf(held->entry);
  }
  return bytes;
}

void Backlog::Count(const Entry& entry, std::optional<LostSteps>* steps) {
  if (!steps->has_value()) *steps = LostSteps{entry.step, entry.step, 0};
  (*steps)->first = std::min((*steps)->first, entry.step);
  (*steps)->last = std::max((*steps)->last, entry.step);
  ++(*steps)->entries;
}

std::optional<LostSteps> Backlog::NotDurable() const {
  std::optional<LostSteps> steps;
  for (auto held = held_.rbegin(); held != held_.rend() && held->number > durable_; ++held) {
    Count(held->entry, &steps);
  }
  return steps;
}

std::optional<LostSteps> Backlog::TakeDropped() { return std::exchange(dropped_, std::nullopt); }

}  // namespace muster::tensorboard
