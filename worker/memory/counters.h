// Bytes in use and their peak, in total and by purpose.
#ifndef MUSTER_WORKER_MEMORY_COUNTERS_H_
#define MUSTER_WORKER_MEMORY_COUNTERS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/memory/memory_scope.h"

namespace muster::memory {

struct Use {
  uint64_t bytes = 0;
  // The largest number of bytes at one time.
  uint64_t peak_bytes = 0;

  bool operator==(const Use&) const = default;
};

struct Usage {
  // The use by all purposes together. Its peak is not more than the sum of the purposes' peaks,
  // which may lie at different times.
  Use total;
  std::array<Use, kPurposes> by_purpose;

  const Use& of(Purpose purpose) const { return by_purpose[static_cast<size_t>(purpose)]; }
};

// Thread-safe and without locks. Each number by itself is exact: sums and peaks miss nothing. Read
// returns numbers from slightly different moments, unless no thread adds or removes in the
// meantime.
class Counters {
 public:
  void Add(Purpose purpose, size_t bytes) {
    total_.Add(bytes);
    of(purpose).Add(bytes);
  }
  // Removes bytes that were added under the same purpose.
  void Remove(Purpose purpose, size_t bytes) {
    total_.Remove(bytes);
    of(purpose).Remove(bytes);
  }

  Usage Read() const {
    Usage usage{.total = total_.Read(), .by_purpose = {}};
    for (size_t i = 0; i < by_purpose_.size(); ++i) usage.by_purpose[i] = by_purpose_[i].Read();
    return usage;
  }

  // Sets every peak to the present use. A peak that another thread makes during the call may be
  // missed.
  void ResetPeaks() {
    total_.ResetPeak();
    for (Counter& counter : by_purpose_) counter.ResetPeak();
  }

 private:
  // The counter of a purpose. Each has a separate cache line, so that threads that count for
  // different purposes do not wait for each other.
  struct alignas(64) Counter {
    void Add(size_t bytes) { Raise(in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes); }
    void Remove(size_t bytes) { in_use.fetch_sub(bytes, std::memory_order_relaxed); }
    void Raise(uint64_t reached) {
      uint64_t known = peak.load(std::memory_order_relaxed);
      while (known < reached &&
             !peak.compare_exchange_weak(known, reached, std::memory_order_relaxed)) {
      }
    }
    void ResetPeak() {
      peak.store(in_use.load(std::memory_order_relaxed), std::memory_order_relaxed);
      // The bytes that were added between the two stores.
      Raise(in_use.load(std::memory_order_relaxed));
    }
    Use Read() const {
      const uint64_t bytes = in_use.load(std::memory_order_relaxed);
      // The peak, which a thread that adds may not have raised yet.
      return {bytes, std::max(bytes, peak.load(std::memory_order_relaxed))};
    }

    std::atomic<uint64_t> in_use{0};
    std::atomic<uint64_t> peak{0};
  };

  Counter& of(Purpose purpose) { return by_purpose_[static_cast<size_t>(purpose)]; }

  Counter total_;
  std::array<Counter, kPurposes> by_purpose_;
};

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_COUNTERS_H_
