#include "worker/comm/local/local_group.h"

#include <memory>
#include <string>

#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::comm {
namespace {

// What rank 1 is told when the ranks issue these.
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
  const auto mean = [](Communicator& rank) { return rank.AllReduceSum(at::ones({4}), {"x", 1}, 2.0); };
  const auto from_0 = [](Communicator& rank) { return rank.Broadcast(at::ones({4}), 0, {"x", 1}); };
  const auto from_1 = [](Communicator& rank) { return rank.Broadcast(at::ones({4}), 1, {"x", 1}); };
  using testing::HasSubstr;
  EXPECT_THAT(Disagreement(sum, mean), HasSubstr("rank 1 all_reduce 'x' at step 1: all_reduce of 4 Float "
                                                 "divided by 2"));
  EXPECT_THAT(Disagreement(from_0, from_1), HasSubstr("broadcast of 4 Float from rank 1"));
  EXPECT_THAT(Disagreement(sum, from_0), HasSubstr("rank 1 broadcast 'x' at step 1"));
}

TEST(LocalGroup, RanksThatIssueDifferentOperationsAreToldWhatEachDid) {
  auto ranks = LocalGroup::Create(2);
  const at::Tensor flat = at::ones({4});
  auto a = ranks[0]->AllReduceSum(flat, {"bucket 0", 3});
  auto b = ranks[1]->AllReduceSum(at::ones({5}), {"bucket 1", 3});
  for (Work* work : {a.get(), b.get()}) {
    const absl::Status status = work->Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(status.message()).find("rank 0 all_reduce 'bucket 0' at step 3: all_reduce "
                                                 "of 4 Float; rank 1 all_reduce 'bucket 1'"),
              std::string::npos)
        << status;
  }
  EXPECT_TRUE(flat.equal(at::ones({4}))) << "nothing was added up";
  // And that is the end of the group.
  const absl::Status later = ranks[0]->AllReduceSum(flat, {"bucket 2", 3})->Wait();
  EXPECT_EQ(later.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(later.message()).find("bucket 1"), std::string::npos) << later;
}

}  // namespace
}  // namespace muster::comm
