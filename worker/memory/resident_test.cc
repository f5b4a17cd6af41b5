#include "worker/memory/resident.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <memory>
#include <vector>

namespace muster::memory {
namespace {

TEST(ResidentBytes, GrowWithThePagesThatAreTouched) {
  constexpr uint64_t kBytes = 64 << 20;
  const uint64_t before = ResidentBytes();
  EXPECT_GT(before, 0u);
  const auto memory = std::make_unique<char[]>(kBytes);  // zeroed: touched
  EXPECT_EQ(memory[kBytes - 1], 0);
  // Other pages of this small process may leave memory meanwhile. Half of kBytes is far more than
  // these pages.
  EXPECT_GT(ResidentBytes(), before + kBytes / 2);
}

TEST(ReturnFreedMemory, LeavesOnlyPagesThatHoldSomething) {
  // Malloc is set as in muster-worker, so that free() gives nothing back.
  ASSERT_EQ(mallopt(M_MMAP_MAX, 0), 1);
  ASSERT_EQ(mallopt(M_TRIM_THRESHOLD, -1), 1);
  constexpr size_t kPieces = 64;
  constexpr size_t kBytes = 1 << 20;
  const uint64_t before = ResidentBytes();
  std::vector<std::unique_ptr<char[]>> pieces;
  for (size_t i = 0; i < kPieces; ++i) pieces.push_back(std::make_unique<char[]>(kBytes));
  // Freed pages lie between used pages, so that trimming the end of the heap cannot give them back.
  for (size_t i = 0; i + 1 < kPieces; ++i) pieces[i].reset();
  ASSERT_GT(ResidentBytes(), before + kPieces / 2 * kBytes);
  ReturnFreedMemory();
  EXPECT_LT(ResidentBytes(), before + kPieces / 2 * kBytes);
  EXPECT_EQ(pieces.back()[kBytes - 1], 0);
}

}  // namespace
}  // namespace muster::memory
