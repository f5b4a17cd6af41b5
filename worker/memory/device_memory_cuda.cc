// The build with --config=cuda.
#include <cuda_runtime_api.h>

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "ATen/Context.h"
#include "c10/cuda/CUDACachingAllocator.h"
#include "worker/memory/device_memory.h"
#include "worker/memory/memory_scope.h"

namespace muster::memory {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

struct Block {
  Purpose purpose;
  size_t bytes;
};

class Tracker {
 public:
  // Takes in an allocation or a release. Called within the allocator, in the thread that allocates
  // or frees.
  void Track(const allocator::TraceEntry& entry) {
    const auto address = static_cast<uint64_t>(entry.addr_);
    using Entry = allocator::TraceEntry;
    const std::lock_guard lock(mutex_);
    if (entry.action_ == Entry::ALLOC) {
      const Block block = {PurposeNow(), static_cast<size_t>(entry.size_)};
      blocks_[address] = block;
      counters_.Add(block.purpose, block.bytes);
    } else if (entry.action_ == Entry::FREE_REQUESTED) {
      const auto found = blocks_.find(address);
      if (found == blocks_.end()) return;
      counters_.Remove(found->second.purpose, found->second.bytes);
      blocks_.erase(found);
    }
  }
  Usage Read() const { return counters_.Read(); }

 private:
  Purpose PurposeNow() const {
    const Purpose purpose = CurrentPurpose();
    const bool of_autograd = std::this_thread::get_id() != session_;
    return purpose == Purpose::kOther && of_autograd ? Purpose::kActivations : purpose;
  }

  const std::thread::id session_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::unordered_map<uint64_t, Block> blocks_;  // by address
  Counters counters_;
};

std::atomic<Tracker*> tracker = nullptr;

}  // namespace

void CountDeviceMemory() {
  try {
    at::globalContext().lazyInitDevice(c10::kCUDA);  // creates the allocators
  } catch (const std::exception&) {
    return;  // Without a usable GPU there is nothing to count; the session says why.
  }
  // The tracker is never destroyed, because tensors with static lifetime outlive main.
  tracker = new Tracker();
  allocator::attachAllocatorTraceTracker(
      [](const allocator::TraceEntry& entry) { tracker.load()->Track(entry); });
}

DeviceMemory DeviceMemoryInUse() {
  if (tracker == nullptr) return {};
  DeviceMemory memory{.in_use = tracker.load()->Read()};
  const auto stats = allocator::getDeviceStats(0);
  // The first statistic covers all pools together.
  memory.reserved_bytes = static_cast<uint64_t>(stats.reserved_bytes[0].current);
  return memory;
}

uint64_t AvailableDeviceBytes() {
  int device = 0;
  size_t free = 0;
  size_t total = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();  // clears the error for later calls
    return std::numeric_limits<uint64_t>::max();
  }
  const auto stats = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  return free +
         static_cast<uint64_t>(stats.reserved_bytes[0].current - stats.allocated_bytes[0].current);
}

}  // namespace muster::memory
