// A count that grows while a piece of work makes progress: with each batch, each micro-batch, each
// block of bytes that is read or written. If the number is the same at two times, there was no
// progress in between; how long the work takes does not matter.
//
// Loops, readers and writers call Moved(), which adds to the count of the scope in which the thread
// is. So nothing is global to the process, and ranks that are threads of one process have separate
// counts. Waiting for others is not progress: code that waits must not call Moved(). Disk::Write
// and Sync, and the hashes of common/files, call it for each block.
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

// While it lives, calls of Moved() on this thread count for `activity` (null: for none), which must
// outlive it. Scopes nest.
class Scope {
 public:
  explicit Scope(Activity* activity);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Activity* const outer_;
};

// What calls of Moved() on this thread count for; null: nothing. A thread that works for this one
// makes a Scope with it.
Activity* Current();

// Counts one batch or block. Takes a few nanoseconds; does nothing outside of a scope.
void Moved();

// How many bytes are read, written or hashed between two calls of Moved(). Any disk needs much less
// time for them than the shortest time without progress that a job may set.
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
