#include "worker/data/evaluation.h"

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

}  // namespace
}  // namespace muster::data
