#include "worker/memory/counting_allocator.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

#include "c10/core/Allocator.h"
#include "c10/core/CPUAllocator.h"
#include "worker/memory/memory_scope.h"

namespace muster::memory {
namespace {

// The size of the header in front of the data. It equals LibTorch's alignment, so the data stays
// aligned.
constexpr size_t kHeaderBytes = 64;
struct Header {
  size_t bytes;
  Purpose purpose;
};
static_assert(sizeof(Header) <= kHeaderBytes);

constinit Counters counters;

// An allocator whose contexts are the data pointers, as raw_allocate and LibTorch's copy-on-write
// need.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* under) { under_ = under; }

  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &Free, cpu};
    // A size that leaves no room for the header goes to the allocator underneath without the
    // header, so that it refuses the size.
    const size_t room = std::numeric_limits<size_t>::max() - bytes;
    char* const memory =
        static_cast<char*>(under_->raw_allocate(bytes + std::min(kHeaderBytes, room)));
    new (memory) Header{bytes, CurrentPurpose()};
    counters.Add(CurrentPurpose(), bytes);
    char* const data = memory + kHeaderBytes;
    return {data, data, &Free, cpu};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void Free(void* data) {
    if (data == nullptr) return;
    char* const memory = static_cast<char*>(data) - kHeaderBytes;
    const Header header = *std::launder(reinterpret_cast<Header*>(memory));
    counters.Remove(header.purpose, header.bytes);
    under_->raw_deallocate(memory);
  }

  // A deleter is a plain function, and a DataPtr has no place for the allocator. So the pointer is
  // static.
  static inline c10::Allocator* under_ = nullptr;
};

}  // namespace

void InstallCountingAllocator() {
  static const bool installed = [] {
    // Never destroyed: tensors with static lifetime outlive main.
    c10::SetCPUAllocator(new CountingAllocator(c10::GetCPUAllocator()),
                         std::numeric_limits<uint8_t>::max());
    return true;
  }();
  static_cast<void>(installed);
}

Usage MemoryInUse() { return counters.Read(); }

void ResetPeaks() { counters.ResetPeaks(); }

}  // namespace muster::memory
