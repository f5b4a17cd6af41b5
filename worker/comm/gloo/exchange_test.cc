#include "worker/comm/gloo/exchange.h"

#include <cstdint>

#include "ATen/ops/empty.h"
#include "gtest/gtest.h"

namespace muster::comm {
namespace {

int64_t ReduceScatterScratch(int rank, int world_size, const at::Tensor& out,
                             const at::Tensor& in) {
  return ScratchBytes({OperationKind::kReduceScatterSum, {"x", 1}, rank, out, in}, world_size);
}

TEST(ScratchBytes, AReduceScatterTakesOneContributionInItsOutput) {
  for (int n : {1, 2, 3, 8}) {
    const at::Tensor in = at::empty({1000 * n});
    EXPECT_EQ(ReduceScatterScratch(n - 1, n, at::empty({1000}), in), n == 1 ? 0 : (n - 2) * 4000);
    EXPECT_EQ(ReduceScatterScratch(n - 1, n, in.narrow(0, (n - 1) * 1000, 1000), in),
              (n - 1) * 4000)
        << "in place";
    EXPECT_EQ(ReduceScatterScratch(n - 1, n, at::empty({1000}), in.to(at::kBFloat16)),
              (n - 1) * 2000);
  }
}

TEST(ScratchBytes, AnAllReduceNeedsTheOtherRanksSlices) {
  const auto scratch = [](int rank, int world_size, int64_t elements) {
    return ScratchBytes({OperationKind::kAllReduceSum, {"x", 1}, rank, at::empty({elements})},
                        world_size);
  };
  EXPECT_EQ(scratch(0, 1, 1000), 0);
  EXPECT_EQ(scratch(0, 3, 96), 2 * 32 * 4);
  EXPECT_EQ(scratch(2, 3, 80), 2 * 16 * 4) << "the last slice is shorter";
}

TEST(ScratchBytes, OnlySumsNeedIt) {
  const at::Tensor flat = at::empty({64});
  EXPECT_EQ(ScratchBytes({OperationKind::kBroadcast, {"x", 1}, 0, flat}, 4), 0);
  EXPECT_EQ(ScratchBytes({OperationKind::kAllGather, {"x", 1}, 0, flat, at::empty({16})}, 4), 0);
}

}  // namespace
}  // namespace muster::comm
