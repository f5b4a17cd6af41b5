// The purpose of memory. While a scope lives, all memory that LibTorch allocates in its thread
// counts for its purpose (counting_allocator.h). docs/reference/memory.md says where the scopes
// are.
//
//   {
//     const MemoryScope scope(Purpose::kMoments);
//     exp_avg = at::zeros(sizes);  // counts as moments until it is freed, wherever that happens
//   }
//
// Scopes nest: the innermost counts. A scope belongs to one thread. Threads that this thread
// starts, or that work for it (at::parallel_for), are outside of the scope. The backward of CPU
// tensors runs in the calling thread, and so in its scope. Cost: two writes to a thread-local
// variable.
#ifndef MUSTER_WORKER_MEMORY_MEMORY_SCOPE_H_
#define MUSTER_WORKER_MEMORY_MEMORY_SCOPE_H_

namespace muster::memory {

enum class Purpose { kOther, kParameters, kGradients, kMoments, kBuckets, kActivations, kGathered };
inline constexpr int kPurposes = 7;

namespace internal {
inline constinit thread_local Purpose current_purpose = Purpose::kOther;
}  // namespace internal

// The purpose of this thread's innermost scope; kOther outside of all scopes.
inline Purpose CurrentPurpose() { return internal::current_purpose; }

class MemoryScope {
 public:
  explicit MemoryScope(Purpose purpose) : outer_(internal::current_purpose) {
    internal::current_purpose = purpose;
  }
  ~MemoryScope() { internal::current_purpose = outer_; }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  const Purpose outer_;
};

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_MEMORY_SCOPE_H_
