#include "worker/memory/counters.h"

#include <algorithm>

namespace muster::memory {

void Counters::Counter::ResetPeak() {
  peak.store(in_use.load(std::memory_order_relaxed), std::memory_order_relaxed);
  // What came between the two.
  Raise(in_use.load(std::memory_order_relaxed));
}

Use Counters::Counter::Read() const {
  const uint64_t bytes = in_use.load(std::memory_order_relaxed);
  // A thread that adds has not raised the peak yet.
  return {bytes, std::max(bytes, peak.load(std::memory_order_relaxed))};
}

Usage Counters::Read() const {
  Usage usage{.total = total_.Read(), .by_purpose = {}};
  for (size_t i = 0; i < by_purpose_.size(); ++i) usage.by_purpose[i] = by_purpose_[i].Read();
  return usage;
}

void Counters::ResetPeaks() {
  total_.ResetPeak();
  for (Counter& counter : by_purpose_) counter.ResetPeak();
}

}  // namespace muster::memory
