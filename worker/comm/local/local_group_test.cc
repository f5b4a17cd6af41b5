#include "worker/comm/local/local_group.h"

#include "ATen/ops/ones.h"
#include "gtest/gtest.h"

namespace muster::comm {
namespace {

TEST(LocalGroup, RanksThatIssueDifferentOperationsAreToldWhatEachDid) {
  auto ranks = LocalGroup::Create(2);
  auto a = ranks[0]->AllReduceSum(at::ones({4}), {"bucket 0", 3});
  auto b = ranks[1]->AllReduceSum(at::ones({5}), {"bucket 1", 3});
  for (Work* work : {a.get(), b.get()}) {
    const absl::Status status = work->Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(status.message()).find("rank 0 all_reduce 'bucket 0' at step 3: all_reduce "
                                                 "of 4 Float; rank 1 all_reduce 'bucket 1'"),
              std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace muster::comm
