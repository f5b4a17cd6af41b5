// A count that grows while a piece of work makes progress: with each batch, each micro-batch, each
// block of bytes that is read or written. The same number at two times means no progress in
// between, however long the work takes.
//
// Loops, readers and writers call Moved(), which adds to the count of the thread's scope. So no
// count is global to the process, and ranks that are threads of one process have separate counts.
// Waiting for others is not progress: code that waits must not call Moved(). Disk::Write,
// Disk::Sync and the hashes of common/files call Moved() for each block.
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

// Makes calls of Moved() on this thread count for `activity`, for the life of the Scope. `activity`
// must outlive the Scope; null: no count. Scopes nest.
class Scope {
 public:
  explicit Scope(Activity* activity);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Activity* const outer_;
};

// The Activity for which calls of Moved() on this thread count; null: none. A thread that works for
// this thread makes a Scope with it.
Activity* Current();

// Counts one batch or block. Takes a few nanoseconds; does nothing outside of a scope.
void Moved();

// The number of bytes that are read, written or hashed between two calls of Moved(). Any disk
// handles so many bytes much faster than the shortest time without progress that a job may set.
inline constexpr size_t kBlockBytes = size_t{4} << 20;

// Calls `work(offset, bytes)` for each block of `size` bytes in order, and Moved() after each
// block. Ends when `work` returns false.
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
