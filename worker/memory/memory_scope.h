// What memory is for. A thread says so for as long as a scope lives, and what LibTorch allocates in
// that thread meanwhile counts as that (counting_allocator.h). docs/memory.md says where the scopes
// stand.
//
//   {
//     const MemoryScope scope(Purpose::kMoments);
//     exp_avg = at::zeros(sizes);  // counts as moments until it is freed, wherever that happens
//   }
//
// Scopes nest: the innermost counts. They are a thread's own: threads that it starts, or that work
// for it (at::parallel_for), are outside of them. The backward of CPU tensors runs in the thread
// that calls it, so inside its scope. Cost: two writes to a thread's own variable.
#ifndef MUSTER_WORKER_MEMORY_MEMORY_SCOPE_H_
#define MUSTER_WORKER_MEMORY_MEMORY_SCOPE_H_

namespace muster::memory {

enum class Purpose { kOther, kParameters, kGradients, kMoments, kBuckets, kActivations, kGathered };
inline constexpr int kPurposes = 7;

namespace internal {
inline constinit thread_local Purpose current_purpose = Purpose::kOther;
}  // namespace internal

// Of this thread: of its innermost scope; kOther outside of all.
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
