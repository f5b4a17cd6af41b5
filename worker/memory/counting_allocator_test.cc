#include "worker/memory/counting_allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/native/Resize.h"
#include "ATen/ops/_lazy_clone.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "c10/core/CPUAllocator.h"

namespace muster::memory {
namespace {

// A tensor from before the installation of the allocator.
at::Tensor early = at::ones({1000});

// The changes since this object was made.
class Since {
 public:
  int64_t bytes(Purpose purpose) const {
    return Difference(MemoryInUse().of(purpose), before_.of(purpose));
  }
  int64_t total() const { return Difference(MemoryInUse().total, before_.total); }

 private:
  static int64_t Difference(const Use& now, const Use& before) {
    return static_cast<int64_t>(now.bytes) - static_cast<int64_t>(before.bytes);
  }
  const Usage before_ = MemoryInUse();
};

class CountingAllocatorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    InstallCountingAllocator();
    c10::Allocator* const first = c10::GetCPUAllocator();
    InstallCountingAllocator();
    ASSERT_EQ(c10::GetCPUAllocator(), first) << "counted twice";
  }

  static at::Tensor Floats(int64_t count) { return at::empty({count}, at::kFloat); }
};

TEST_F(CountingAllocatorTest, CountsUnderThePurposeOfTheScope) {
  const std::pair<Purpose, int64_t> sizes[] = {
      {Purpose::kOther, 1},   {Purpose::kParameters, 2}, {Purpose::kGradients, 3},
      {Purpose::kMoments, 4}, {Purpose::kBuckets, 5},    {Purpose::kActivations, 6},
  };
  const Since since;
  std::vector<at::Tensor> tensors;
  for (const auto& [purpose, size] : sizes) {
    const MemoryScope scope(purpose);
    tensors.push_back(Floats(1000 * size));
  }
  for (const auto& [purpose, size] : sizes) EXPECT_EQ(since.bytes(purpose), 4000 * size);
  EXPECT_EQ(since.total(), 4000 * 21);
  tensors.clear();
  for (const auto& [purpose, size] : sizes) EXPECT_EQ(since.bytes(purpose), 0);
  EXPECT_EQ(since.total(), 0);
}

TEST_F(CountingAllocatorTest, WhatIsFreedComesOffItsOwnPurposeInAnyScopeAndThread) {
  const Since since;
  at::Tensor tensor;
  {
    const MemoryScope scope(Purpose::kMoments);
    tensor = Floats(1000);
  }
  std::thread([moved = std::move(tensor), &since]() mutable {
    const MemoryScope scope(Purpose::kBuckets);
    EXPECT_EQ(since.bytes(Purpose::kMoments), 4000);
    moved.reset();
  }).join();
  EXPECT_EQ(since.bytes(Purpose::kMoments), 0);
  EXPECT_EQ(since.bytes(Purpose::kBuckets), 0);
  EXPECT_EQ(since.total(), 0);
}

TEST_F(CountingAllocatorTest, ThePeakStaysUntilItIsReset) {
  const MemoryScope scope(Purpose::kActivations);
  ResetPeaks();
  const Use before = MemoryInUse().of(Purpose::kActivations);
  {
    const at::Tensor first = Floats(1000);
    const at::Tensor second = Floats(500);
  }
  at::Tensor third = Floats(10);
  EXPECT_EQ(MemoryInUse().of(Purpose::kActivations), (Use{before.bytes + 40, before.bytes + 6000}));
  ResetPeaks();
  EXPECT_EQ(MemoryInUse().of(Purpose::kActivations), (Use{before.bytes + 40, before.bytes + 40}));
}

TEST_F(CountingAllocatorTest, DataIsAlignedAndItsOwnContext) {
  for (const size_t bytes : {1, 63, 64, 65, 4096, 1 << 20}) {
    const c10::DataPtr data = c10::GetCPUAllocator()->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data.get()) % 64, 0u) << bytes;
    EXPECT_EQ(data.get(), data.get_context());
    EXPECT_TRUE(c10::GetCPUAllocator()->is_simple_data_ptr(data));
    EXPECT_EQ(data.device(), c10::Device(c10::DeviceType::CPU));
    std::memset(data.get(), 0xff, bytes);  // the header is not part of it
  }
}

TEST_F(CountingAllocatorTest, NoBytesAreANullPointer) {
  const Since since;
  const c10::DataPtr none = c10::GetCPUAllocator()->allocate(0);
  EXPECT_EQ(none.get(), nullptr);
  EXPECT_EQ(none.device(), c10::Device(c10::DeviceType::CPU));
  EXPECT_EQ(at::empty({0, 3}, at::kFloat).numel(), 0);
  c10::GetCPUAllocator()->raw_deallocate(c10::GetCPUAllocator()->raw_allocate(0));
  EXPECT_EQ(since.total(), 0);
}

TEST_F(CountingAllocatorTest, RawMemoryIsCountedToo) {
  const Since since;
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  void* const data = allocator->raw_allocate(1000);
  EXPECT_EQ(since.bytes(Purpose::kOther), 1000);
  EXPECT_EQ(allocator->allocate(1).get_deleter(), allocator->raw_deleter());
  std::memset(data, 7, 1000);
  const c10::DataPtr copy = allocator->clone(data, 1000);
  EXPECT_EQ(since.bytes(Purpose::kOther), 2000);
  EXPECT_EQ(std::memcmp(copy.get(), data, 1000), 0);
  allocator->raw_deallocate(data);
  EXPECT_EQ(since.bytes(Purpose::kOther), 1000);
}

TEST_F(CountingAllocatorTest, StoragesAreResizedUnderThePurposeOfTheMoment) {
  const Since since;
  at::Tensor tensor;
  {
    const MemoryScope scope(Purpose::kParameters);
    tensor = Floats(1000);
  }
  at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), 0);
  EXPECT_EQ(since.total(), 0);
  {
    const MemoryScope scope(Purpose::kParameters);
    at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), 4000);
  }
  EXPECT_EQ(since.bytes(Purpose::kParameters), 4000);
  tensor.fill_(3);
  {
    const MemoryScope scope(Purpose::kGradients);
    tensor.resize_({2000});
  }
  EXPECT_EQ(since.bytes(Purpose::kParameters), 0);
  EXPECT_EQ(since.bytes(Purpose::kGradients), 8000);
  EXPECT_EQ(tensor[999].item<float>(), 3);
}

TEST_F(CountingAllocatorTest, ViewsAndForeignMemoryAreNotCounted) {
  const Since since;
  std::vector<float> own(1000);
  int freed = 0;
  {
    const at::Tensor blob = at::from_blob(
        own.data(), {1000}, [&freed](void*) { ++freed; }, at::TensorOptions(at::kFloat));
    const at::Tensor view = blob.narrow(0, 10, 20).view({4, 5});
    EXPECT_EQ(since.total(), 0);
  }
  EXPECT_EQ(freed, 1);
  at::Tensor tensor = Floats(1000);
  const at::Tensor view = tensor.narrow(0, 500, 500);
  tensor.reset();
  EXPECT_EQ(since.total(), 4000) << "a view keeps the memory of the whole";
}

TEST_F(CountingAllocatorTest, ACopyOnWriteIsCountedWhenItIsWritten) {
  const Since since;
  const at::Tensor tensor = at::ones({1000}, at::kFloat);
  at::Tensor copy = at::_lazy_clone(tensor);
  EXPECT_EQ(since.total(), 4000);
  copy.fill_(2);
  EXPECT_EQ(since.total(), 8000);
  EXPECT_EQ(tensor[0].item<float>(), 1);
  EXPECT_EQ(copy[0].item<float>(), 2);
}

TEST_F(CountingAllocatorTest, WhatWasThereBeforeIsFreedAsBefore) {
  const Since since;
  EXPECT_EQ(early.sum().item<float>(), 1000);
  EXPECT_EQ(since.total(), 0);
  early.reset();
  EXPECT_EQ(since.total(), 0);
}

TEST_F(CountingAllocatorTest, SizesThatCannotBeAreRefusedAndNotCounted) {
  const Since since;
  const size_t most = std::numeric_limits<size_t>::max();
  for (const size_t bytes : {most, most - 63, most - 64, most / 2, most / 4}) {
    EXPECT_THROW(c10::GetCPUAllocator()->allocate(bytes), c10::Error) << bytes;
  }
  EXPECT_EQ(since.total(), 0);
}

TEST_F(CountingAllocatorTest, ThreadsThatHandTensorsOnEndAtNothing) {
  const Since since;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      const MemoryScope scope(static_cast<Purpose>(1 + i));
      std::vector<at::Tensor> made;
      for (int64_t round = 0; round < 500; ++round) made.push_back(Floats(round));
      std::thread([handed_on = std::move(made)]() mutable { handed_on.clear(); }).join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kPurposes; ++i) EXPECT_EQ(since.bytes(static_cast<Purpose>(i)), 0) << i;
  EXPECT_EQ(since.total(), 0);
}

}  // namespace
}  // namespace muster::memory
