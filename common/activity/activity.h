// A count that grows while a piece of work moves: with each batch, each micro-batch, each block of
// bytes that is read or written. Who looks at it twice and finds the same number knows that nothing
// has moved in between; how long the work takes does not matter.
//
// What moves does not know for whom: it calls Moved(), deep inside loops, readers and writers, and
// the count is that of the scope in which this thread is. So there is nothing process-wide, and
// ranks that are threads of one process count each for itself. Waiting for others is no activity:
// whoever waits must not call Moved(). Disk::Write and Sync, and the hashes of common/files, call
// it for each block.
#ifndef MUSTER_COMMON_ACTIVITY_ACTIVITY_H_
#define MUSTER_COMMON_ACTIVITY_ACTIVITY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace muster::activity {

// Threading: thread-safe.
class Activity {
 public:
  void Moved() { count_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> count_{0};
};

// While it lives, what this thread does counts for `activity` (null: for nobody), which outlives
// it. Scopes nest.
class Scope {
 public:
  explicit Scope(Activity* activity);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Activity* const outer_;
};

// One batch or block further. A few nanoseconds; nothing outside of a scope.
void Moved();

// What is read, written or hashed at once between two calls of Moved(): small enough for any disk
// to get through in much less than the shortest patience.
inline constexpr size_t kBlockBytes = size_t{4} << 20;

// Calls `work(offset, bytes)` for block after block of `size` bytes, and Moved() after each. A
// `work` that returns false ends it.
template <typename Work>
void ByBlocks(size_t size, const Work& work) {
  for (size_t offset = 0; offset < size; offset += kBlockBytes) {
    const size_t left = size - offset;
    if (!work(offset, left < kBlockBytes ? left : kBlockBytes)) return;
    Moved();
  }
}

}  // namespace muster::activity

#endif  // MUSTER_COMMON_ACTIVITY_ACTIVITY_H_
