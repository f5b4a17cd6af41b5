#include "worker/parallel/model_tensors.h"

#include <thread>

#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"
#include "worker/comm/local/local_group.h"

namespace muster::parallel {
namespace {

// Returns the status of each of `world_size` ranks when the ranks in `different` hold other bits in
// 'b'.
std::vector<absl::Status> Check(int world_size, const std::vector<int>& different) {
  auto ranks = comm::LocalGroup::Create(world_size);
  std::vector<absl::Status> results(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      at::Tensor a = at::ones({100}), b = at::zeros({3, 5});
      for (int other : different) {
        // -0.0 equals 0.0, but has other bits.
        if (rank == other) b.data_ptr<float>()[14] = -0.0f;
      }
      results[rank] =
          CheckEqualOnAllRanks({"parameter 'a'", "buffer 'b'"}, {a, b}, 12, ranks[rank].get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(CheckEqualOnAllRanks, EqualParametersPass) {
  for (int world_size : {1, 2, 4}) {
    for (const absl::Status& status : Check(world_size, {})) EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(CheckEqualOnAllRanks, NamesTheParameterAndTheRanks) {
  for (const absl::Status& status : Check(4, {1, 3})) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(std::string(status.message()),
              "step 12: buffer 'b' differs from rank 0's on rank 1, 3");
  }
  EXPECT_EQ(std::string(Check(8, {1, 2, 3, 4, 7})[5].message()),
            "step 12: buffer 'b' differs from rank 0's on rank 1, 2, 3 and 2 more");
}

}  // namespace
}  // namespace muster::parallel
