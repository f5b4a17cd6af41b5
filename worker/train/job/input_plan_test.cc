#include "worker/train/job/input_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RankInput Has(int64_t micro_batches, int64_t samples) { return {micro_batches, samples, 0}; }
RankInput JoinedSince(int64_t step) { return {0, 0, step}; }

TEST(PlanInputs, EvenInputsAreDividedAlikeByInitialAndActive) {
  for (const DivideBy divide_by : {DivideBy::kInitial, DivideBy::kActive}) {
    const InputPlan plan = PlanInputs({Has(2, 8), Has(2, 8)}, {.divide_by = divide_by}, 4);
    EXPECT_EQ(plan.divisor, 4);
    EXPECT_EQ(plan.samples, 16);
    EXPECT_EQ(plan.micro_batches, 2);
    EXPECT_EQ(plan.buffers_from, 1);
    EXPECT_THAT(plan.joined, IsEmpty());
    EXPECT_THAT(plan.ran_out, IsEmpty());
  }
}

TEST(PlanInputs, InitialCountsWhatEveryRankWouldBringAndActiveWhatTheyDo) {
  const std::vector<RankInput> ranks = {Has(2, 7), Has(1, 4), JoinedSince(5)};
  EXPECT_EQ(PlanInputs(ranks, {.divide_by = DivideBy::kInitial}, 6).divisor, 6);
  EXPECT_EQ(PlanInputs(ranks, {.divide_by = DivideBy::kActive}, 6).divisor, 3);
  EXPECT_EQ(PlanInputs(ranks, {.divide_by = DivideBy::kSamples}, 6).divisor, 1);
}

TEST(PlanInputs, AllTakePartInAsManyMicroBatchesAsTheOneWithTheMostHas) {
  EXPECT_EQ(PlanInputs({Has(1, 4), Has(3, 12), JoinedSince(1)}, {}, 9).micro_batches, 3);
}

TEST(PlanInputs, BuffersComeFromTheHighestRankWithInput) {
  EXPECT_EQ(PlanInputs({Has(1, 4), Has(1, 4), JoinedSince(1)}, {}, 3).buffers_from, 1);
  EXPECT_EQ(PlanInputs({JoinedSince(1), JoinedSince(1), Has(1, 4)}, {}, 3).buffers_from, 2);
}

TEST(PlanInputs, SaysWhoHasJoinedAndSinceWhen) {
  EXPECT_THAT(PlanInputs({JoinedSince(3), Has(1, 4), JoinedSince(7)}, {}, 3).joined,
              ElementsAre(JoinedRank{0, 3}, JoinedRank{2, 7}));
}

TEST(PlanInputs, AStepToWhichSomeBringLessIsNotTakenWhereTrainingEndsAtTheFirst) {
  const UnevenInputs rules = {.stop_at_first = true};
  EXPECT_THAT(PlanInputs({Has(2, 8), Has(1, 4), JoinedSince(3)}, rules, 6).ran_out,
              ElementsAre(1, 2));
  // A short micro-batch counts as a micro-batch.
  EXPECT_THAT(PlanInputs({Has(2, 8), Has(2, 5)}, rules, 4).ran_out, IsEmpty());
  EXPECT_EQ(DescribeRanOut({1, 2}), "ranks 1, 2 have run out of input");
  EXPECT_EQ(DescribeRanOut({4}), "rank 4 has run out of input");
  EXPECT_EQ(DescribeRanOut({0, 1, 2, 3, 4}), "ranks 0, 1, 2 and 2 more have run out of input");
}

}  // namespace
}  // namespace muster::train
