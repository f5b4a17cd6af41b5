// One rank, on a GPU of this machine; skipped on a machine without a GPU.
#include "worker/comm/nccl/nccl_communicator.h"

#include <memory>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/ones.h"
#include "c10/cuda/CUDAFunctions.h"
#include "gtest/gtest.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {
namespace {

class Nccl : public testing::TestWithParam<SumOrder> {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU";
    auto store = HostStore();
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    auto ranks = CreateNcclCommunicator({.name = "test", .order = GetParam()}, *store_);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    ranks_ = *std::move(ranks);
  }

  at::Tensor Counting(int64_t count) {
    return at::arange(count, at::TensorOptions(at::kFloat).device(at::kCUDA, 0));
  }

  std::unique_ptr<RendezvousStore> store_;
  std::unique_ptr<Communicator> ranks_;
};
INSTANTIATE_TEST_SUITE_P(Orders, Nccl, testing::Values(SumOrder::kFast, SumOrder::kRank));

TEST_P(Nccl, SumsAreDivided) {
  const at::Tensor flat = Counting(7);
  ASSERT_TRUE(ranks_->AllReduceSum(flat, {"sum", 1}, 3.0)->Wait().ok());
  EXPECT_TRUE(flat.cpu().equal(Counting(7).cpu() / 3.0));
  const at::Tensor out = at::empty_like(flat);
  ASSERT_TRUE(ranks_->ReduceScatterSum(out, Counting(7), {"sum", 2}, 3.0)->Wait().ok());
  EXPECT_TRUE(out.equal(flat));
  const at::Tensor rounded = Counting(7).to(at::kBFloat16);
  ASSERT_TRUE(ranks_->ReduceScatterSum(out, rounded, {"sum", 3})->Wait().ok());
  EXPECT_TRUE(out.equal(Counting(7)));
}

TEST_P(Nccl, OtherOperationsCopy) {
  const at::Tensor out = at::empty_like(Counting(5));
  ASSERT_TRUE(ranks_->AllGather(out, Counting(5), {"gather", 1})->Wait().ok());
  EXPECT_TRUE(out.equal(Counting(5)));
  out.zero_();
  ASSERT_TRUE(ranks_->AllToAll(out, {5}, Counting(5), {5}, {"exchange", 2})->Wait().ok());
  EXPECT_TRUE(out.equal(Counting(5)));
  ASSERT_TRUE(ranks_->Broadcast(out, 0, {"broadcast", 3})->Wait().ok());
  EXPECT_TRUE(out.equal(Counting(5)));
}

TEST_P(Nccl, ATensorOnTheCpuIsRefused) {
  const absl::Status status = ranks_->AllReduceSum(at::ones({2}), {"sum", 1})->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_P(Nccl, AfterAnAbortEverythingFailsWithItsCause) {
  ranks_->Abort(absl::UnavailableError("rank 1 is gone"));
  const absl::Status status = ranks_->AllReduceSum(Counting(5), {"sum", 4})->Wait();
  EXPECT_EQ(status.message(), "rank 0: all_reduce 'sum' at step 4: rank 1 is gone");
}

}  // namespace
}  // namespace muster::comm
