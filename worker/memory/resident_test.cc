#include "worker/memory/resident.h"

#include <gtest/gtest.h>

#include <memory>

namespace muster::memory {
namespace {

TEST(ResidentBytes, GrowWithThePagesThatAreTouched) {
  constexpr uint64_t kBytes = 64 << 20;
  const uint64_t before = ResidentBytes();
  EXPECT_GT(before, 0u);
  const auto memory = std::make_unique<char[]>(kBytes);  // zeroed: touched
  EXPECT_EQ(memory[kBytes - 1], 0);
  // Other pages of this small process may go meanwhile: half is far more than they are.
  EXPECT_GT(ResidentBytes(), before + kBytes / 2);
}

}  // namespace
}  // namespace muster::memory
