#include "worker/comm/local/local_group.h"

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::comm {
namespace {

// Returns the error of rank 1 when the ranks issue these operations.
std::string Disagreement(std::unique_ptr<Work> (*first)(Communicator&),
                         std::unique_ptr<Work> (*second)(Communicator&)) {
  auto ranks = LocalGroup::Create(2);
  const auto a = first(*ranks[0]), b = second(*ranks[1]);
  const absl::Status status = b->Wait();
  EXPECT_EQ(a->Wait().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

TEST(LocalGroup, KindDivisorAndRootMustAgreeToo) {
  const auto sum = [](Communicator& rank) { return rank.AllReduceSum(at::ones({4}), {"x", 1}); };
  const auto mean = [](Communicator& rank) {
    return rank.AllReduceSum(at::ones({4}), {"x", 1}, 2.0);
  };
  const auto part = [](Communicator& rank) {
    return rank.ReduceScatterSum(at::ones({2}), at::ones({4}), {"x", 1});
  };
  const auto half_part = [](Communicator& rank) {
    return rank.ReduceScatterSum(at::ones({2}), at::ones({4}, at::kBFloat16), {"x", 1});
  };
  const auto from_0 = [](Communicator& rank) { return rank.Broadcast(at::ones({4}), 0, {"x", 1}); };
  const auto from_1 = [](Communicator& rank) { return rank.Broadcast(at::ones({4}), 1, {"x", 1}); };
  using testing::HasSubstr;
  EXPECT_THAT(Disagreement(sum, mean),
              HasSubstr("rank 1 all_reduce 'x' at step 1: all_reduce of 4 Float "
                        "divided by 2"));
  EXPECT_THAT(Disagreement(from_0, from_1), HasSubstr("broadcast of 4 Float from rank 1"));
  EXPECT_THAT(Disagreement(part, half_part),
              HasSubstr("reduce_scatter of 4 Float into Float; rank 1 reduce_scatter "
                        "'x' at step 1: reduce_scatter of 4 BFloat16 into Float"));
  EXPECT_THAT(Disagreement(sum, part), HasSubstr("rank 1 reduce_scatter 'x' at step 1"));
  EXPECT_THAT(Disagreement(sum, from_0), HasSubstr("rank 1 broadcast 'x' at step 1"));
}

TEST(LocalGroup, SizesOfAnAllToAllMustAgreeForEveryPair) {
  auto ranks = LocalGroup::Create(3);
  using Sizes = std::vector<int64_t>;
  const auto all_to_all = [&](int rank, const Sizes& out_sizes, const Sizes& in_sizes) {
    const int64_t out = std::accumulate(out_sizes.begin(), out_sizes.end(), int64_t{0});
    const int64_t in = std::accumulate(in_sizes.begin(), in_sizes.end(), int64_t{0});
    return ranks[rank]->AllToAll(at::ones({out}), out_sizes, at::ones({in}), in_sizes,
                                 {"pieces", 7});
  };
  // Only rank 2's size for rank 1 differs.
  const auto a = all_to_all(0, {1, 2, 3}, {1, 2, 3}), b = all_to_all(1, {2, 2, 3}, {2, 2, 5}),
             c = all_to_all(2, {3, 5, 0}, {3, 4, 0});
  for (Work* work : {a.get(), b.get(), c.get()}) {
    const absl::Status status = work->Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("rank 2 sends 4 elements to rank 1, which expects 3"));
  }
}

TEST(LocalGroup, RanksThatIssueDifferentOperationsAreToldWhatEachDid) {
  auto ranks = LocalGroup::Create(2);
  const at::Tensor flat = at::ones({4});
  auto a = ranks[0]->AllReduceSum(flat, {"bucket 0", 3});
  auto b = ranks[1]->AllReduceSum(at::ones({5}), {"bucket 1", 3});
  for (Work* work : {a.get(), b.get()}) {
    const absl::Status status = work->Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(status.message())
                  .find("rank 0 all_reduce 'bucket 0' at step 3: all_reduce "
                        "of 4 Float; rank 1 all_reduce 'bucket 1'"),
              std::string::npos)
        << status;
  }
  EXPECT_TRUE(flat.equal(at::ones({4}))) << "nothing was added up";
  // A group that has failed cannot be used again.
  const absl::Status later = ranks[0]->AllReduceSum(flat, {"bucket 2", 3})->Wait();
  EXPECT_EQ(later.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(later.message()).find("bucket 1"), std::string::npos) << later;
}

}  // namespace
}  // namespace muster::comm
