#include "worker/data/evaluation.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace muster::data {
namespace {

TEST(EvaluationPlanTest, EverySampleExactlyOnceInOrderForEveryShape) {
  for (int64_t size : {1, 2, 7, 12, 13}) {
    for (int64_t world_size : {1, 2, 3, 4}) {
      for (int64_t per_rank : {1, 2, 5}) {
        const EvaluationPlan plan{size, world_size, per_rank};
        std::vector<int64_t> seen;
        for (int64_t round = 0; round < plan.rounds(); ++round) {
          for (int64_t rank = 0; rank < world_size; ++rank) {
            const auto samples = plan.Samples(rank, round);
            EXPECT_LE(samples.size(), per_rank);
            seen.insert(seen.end(), samples.begin(), samples.end());
          }
        }
        ASSERT_EQ(seen.size(), size);
        for (int64_t i = 0; i < size; ++i) EXPECT_EQ(seen[i], i);
      }
    }
  }
}

TEST(EvaluationPlanTest, NoRoundIsEmptyOnAllRanks) {
  const EvaluationPlan plan{7, 2, 2};
  EXPECT_EQ(plan.rounds(), 2);
  EXPECT_EQ(plan.Samples(0, 1), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(plan.Samples(1, 1), (std::vector<int64_t>{6}));
}

TEST(EvaluationPlanTest, EverySampleOfEveryRanksOwnFileExactlyOnce) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1}, {3, 3}, {7, 1, 4}, {1, 12}}) {
    for (int64_t per_rank : {1, 2, 5}) {
      const int64_t world_size = static_cast<int64_t>(sizes.size());
      const EvaluationPlan plan{
          .size = sizes[0], .world_size = world_size, .per_rank = per_rank, .own_sizes = sizes};
      const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
      EXPECT_EQ(plan.rounds(), (longest + per_rank - 1) / per_rank);
      for (int64_t rank = 0; rank < world_size; ++rank) {
        std::vector<int64_t> seen;
        for (int64_t round = 0; round < plan.rounds(); ++round) {
          const auto samples = plan.Samples(rank, round);
          EXPECT_LE(samples.size(), per_rank);
          seen.insert(seen.end(), samples.begin(), samples.end());
        }
        ASSERT_EQ(seen.size(), sizes[rank]);
        for (int64_t i = 0; i < sizes[rank]; ++i) EXPECT_EQ(seen[i], i);
      }
    }
  }
}

}  // namespace
}  // namespace muster::data
