#include "worker/comm/operation.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace muster::comm {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;

OperationSpec Gather(int64_t in, int64_t out, at::ScalarType type = at::kFloat) {
  return {.kind = OperationKind::kAllGather,
          .label = {"weights", 17},
          .rank = 1,
          .output = at::zeros({out}, type),
          .input = at::zeros({in}, at::kFloat)};
}
OperationSpec Reduce(at::ScalarType type, double divide_by = 1.0) {
  return {.kind = OperationKind::kAllReduceSum,
          .label = {"bucket 3", 17},
          .rank = 1,
          .output = at::zeros({10}, type),
          .divide_by = divide_by};
}
OperationSpec Scatter(const at::Tensor& in, const at::Tensor& out) {
  return {.kind = OperationKind::kReduceScatterSum,
          .label = {"gradients", 17},
          .rank = 1,
          .output = out,
          .input = in};
}
OperationSpec Exchange(std::vector<int64_t> out_sizes, std::vector<int64_t> in_sizes) {
  return {.kind = OperationKind::kAllToAll,
          .label = {"pieces", 17},
          .rank = 1,
          .output = at::zeros({6}),
          .input = at::zeros({7}),
          .out_sizes = std::move(out_sizes),
          .in_sizes = std::move(in_sizes)};
}
OperationSpec Broadcast(int root) {
  return {.kind = OperationKind::kBroadcast,
          .label = {"buffers", 17},
          .rank = 1,
          .output = at::zeros({10}),
          .root = root};
}

std::string Refusal(const OperationSpec& spec) {
  const absl::Status status = CheckArguments(spec, kRanks);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(CheckArguments, TakesWhatFits) {
  const at::Tensor whole = at::zeros({12});
  for (const OperationSpec& spec :
       {Gather(4, 12), Reduce(at::kFloat, 2), Reduce(at::kDouble), Reduce(at::kLong),
        Scatter(whole, at::zeros({4})), Scatter(whole, whole.narrow(0, 4, 4)),
        Scatter(at::zeros({12}, at::kBFloat16), at::zeros({4})), Exchange({1, 2, 3}, {0, 2, 5}),
        Broadcast(0), Broadcast(2)}) {
    EXPECT_TRUE(CheckArguments(spec, kRanks).ok()) << CheckArguments(spec, kRanks);
  }
}

TEST(CheckArguments, NamesRankOperationAndWhatDoesNotFit) {
  EXPECT_EQ(Refusal(Gather(4, 11)),
            "rank 1: all_gather 'weights' at step 17: the output holds 11 Float, expected 3 times "
            "the input's 4 Float");
  EXPECT_THAT(Refusal(Gather(4, 12, at::kLong)), HasSubstr("the output holds 12 Long"));
  EXPECT_THAT(Refusal(Reduce(at::kHalf)), HasSubstr("cannot sum Half"));
  EXPECT_THAT(Refusal(Reduce(at::kLong, 2)), HasSubstr("an int64 sum cannot be divided"));
  for (const double divisor : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(Refusal(Reduce(at::kFloat, divisor)), HasSubstr("not a positive number"));
  }
  const at::Tensor whole = at::zeros({12});
  EXPECT_THAT(Refusal(Scatter(whole, at::zeros({5}))), HasSubstr("expected 3 times"));
  EXPECT_THAT(Refusal(Scatter(whole, at::zeros({4}, at::kDouble))),
              HasSubstr("cannot sum Float into Double"));
  EXPECT_THAT(Refusal(Scatter(whole, whole.narrow(0, 0, 4))),
              HasSubstr("overlaps the input without being part 1 of it"));
  EXPECT_THAT(Refusal(Exchange({1, 2}, {0, 2, 5})), HasSubstr("the output has 2 sizes"));
  EXPECT_THAT(Refusal(Exchange({1, 2, 4}, {0, 2, 5})), HasSubstr("sizes add up to 7"));
  EXPECT_THAT(Refusal(Exchange({1, 2, 3}, {-1, 2, 6})), HasSubstr("size for rank 0 is -1"));
  EXPECT_THAT(Refusal(Exchange({1, 2, 3}, {0, 3, 4})),
              HasSubstr("sends 3 elements to itself, but expects 2"));
  EXPECT_THAT(Refusal(Broadcast(3)), HasSubstr("root 3 is not a rank of 3"));
  EXPECT_THAT(Refusal(Broadcast(-1)), HasSubstr("root -1"));
  OperationSpec none = Broadcast(0);
  none.output = at::Tensor();
  EXPECT_THAT(Refusal(none), HasSubstr("the buffer is undefined"));
  OperationSpec strided = Broadcast(0);
  strided.output = at::zeros({4, 4}).t();
  EXPECT_THAT(Refusal(strided), HasSubstr("not contiguous"));
}

TEST(Shape, HasWhatTheRanksMustAgreeOn) {
  EXPECT_EQ(Shape(Reduce(at::kFloat, 2)), "all_reduce of 10 Float divided by 2");
  EXPECT_EQ(Shape(Broadcast(2)), "broadcast of 10 Float from rank 2");
  EXPECT_EQ(Shape(Gather(4, 12)), "all_gather of 4 Float");
  EXPECT_EQ(Shape(Scatter(at::zeros({12}, at::kBFloat16), at::zeros({4}))),
            "reduce_scatter of 12 BFloat16 into Float");
  // The sizes of an all-to-all differ between ranks.
  EXPECT_EQ(Shape(Exchange({1, 2, 3}, {0, 2, 5})), "all_to_all of Float");
}

TEST(BytesToSend, CountsWhatGoesToOthersOnly) {
  EXPECT_EQ(BytesToSend(Gather(4, 12), kRanks), 2 * 16);
  EXPECT_EQ(BytesToSend(Scatter(at::zeros({12}, at::kBFloat16), at::zeros({4})), kRanks),
            2 * 4 * 2);
  EXPECT_EQ(BytesToSend(Exchange({1, 2, 3}, {0, 2, 5}), kRanks), 5 * 4);
  EXPECT_EQ(BytesToSend(Broadcast(1), kRanks), 2 * 40);
  EXPECT_EQ(BytesToSend(Broadcast(0), kRanks), 0);
  EXPECT_EQ(BytesToSend(Gather(4, 4), 1), 0);
}

}  // namespace
}  // namespace muster::comm
