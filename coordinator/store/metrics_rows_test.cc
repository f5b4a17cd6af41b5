// Steps and validation passes, in every kind of store.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/store/store_fixture.h"

namespace muster::store {
namespace {

template <typename Row>
std::vector<uint64_t> StepsOf(const absl::StatusOr<std::vector<Row>>& rows) {
  std::vector<uint64_t> steps;
  for (const Row& row : *rows) steps.push_back(row.step);
  return steps;
}

template <typename Row>
Row Of(uint64_t generation, Row row) {
  row.generation = generation;
  return row;
}

TEST_P(StoreTest, StepsAreReadByRangeAndTheNewestRowOfAStepCounts) {
  MetricsRow clipped = Step(3, 0.25);
  clipped.metrics = std::string("bytes\0with zero", 15);
  ASSERT_TRUE(
      store().Commit({.steps = {Step(1, 1), Step(2, 2), Step(3, 3), Step(9, 9, "b")}}).ok());
  ASSERT_TRUE(store().Commit({.steps = {clipped}}).ok());
  kind->Reopen();
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kSteps, "a", 2, 10),
            (std::vector<MetricsRow>{Step(2, 2), clipped}));
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kSteps, "a", 0, 1),
            (std::vector<MetricsRow>{Step(1, 1)}));
  EXPECT_TRUE(store().ReadMetrics(MetricsOf::kSteps, "a", 4, 10)->empty());
}

TEST_P(StoreTest, PassesAreReadByRangeAndTheNewestRowOfAStepCounts) {
  MetricsRow full = Pass(20, 0.5);
  full.metrics = std::string("\0bytes", 6);
  ASSERT_TRUE(store()
                  .Commit({.validations = {Pass(0, 3), Pass(10, 2), Pass(20, 1), Pass(30, 4, "b")}})
                  .ok());
  ASSERT_TRUE(store().Commit({.validations = {full}}).ok());
  kind->Reopen();
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kValidations, "a", 5, 10),
            (std::vector<MetricsRow>{Pass(10, 2), full}));
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kValidations, "a", 0, 1),
            (std::vector<MetricsRow>{Pass(0, 3)}));
  EXPECT_TRUE(store().ReadMetrics(MetricsOf::kValidations, "a", 21, 10)->empty());
}

TEST_P(StoreTest, AStepThatIsComputedAgainRemovesLaterRows) {
  ASSERT_TRUE(
      store()
          .Commit({.steps = {Step(1, 1), Step(2, 2), Step(3, 3), Step(4, 4), Step(9, 9, "b")},
                   .validations = {Pass(2, 2), Pass(4, 4), Pass(9, 9, "b")}})
          .ok());
  // A generation continues from step 2 after a restart.
  kind->Reopen();
  ASSERT_TRUE(store().Commit({.steps = {Of(2, Step(3, 30))}}).ok());
  EXPECT_EQ(StepsOf(store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10)),
            (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(StepsOf(store().ReadMetrics(MetricsOf::kValidations, "a", 0, 10)),
            (std::vector<uint64_t>{2}));
  // A generation continues from step 1, without a restart of the coordinator.
  ASSERT_TRUE(store().Commit({.steps = {Of(3, Step(2, 20))}}).ok());
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10),
            (std::vector<MetricsRow>{Step(1, 1), Of(3, Step(2, 20))}));
  EXPECT_TRUE(store().ReadMetrics(MetricsOf::kValidations, "a", 0, 10)->empty());
  EXPECT_EQ(StepsOf(store().ReadMetrics(MetricsOf::kSteps, "b", 0, 10)),
            (std::vector<uint64_t>{9}));
  EXPECT_EQ(StepsOf(store().ReadMetrics(MetricsOf::kValidations, "b", 0, 10)),
            (std::vector<uint64_t>{9}));
}

TEST_P(StoreTest, TestsHaveRowsBesideThoseOfValidationPasses) {
  ASSERT_TRUE(store()
                  .Commit({.steps = {Step(1, 1), Step(2, 2), Step(3, 3)},
                           .validations = {Pass(2, 2)},
                           .tests = {Pass(2, 20), Pass(3, 30)}})
                  .ok());
  kind->Reopen();
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kTests, "a", 0, 10),
            (std::vector<MetricsRow>{Pass(2, 20), Pass(3, 30)}));
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kTests, "a", 3, 10),
            (std::vector<MetricsRow>{Pass(3, 30)}));
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kValidations, "a", 0, 10),
            (std::vector<MetricsRow>{Pass(2, 2)}));
  // A generation continues from step 2.
  ASSERT_TRUE(store().Commit({.steps = {Of(2, Step(3, 31))}}).ok());
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kTests, "a", 0, 10),
            (std::vector<MetricsRow>{Pass(2, 20)}));
}

// The report comes from an agent's disk, whose spool may contain reports that were sent before.
TEST_P(StoreTest, AStepThatIsReportedTwiceRemovesNothingOfItsOwnGeneration) {
  ASSERT_TRUE(
      store()
          .Commit({.steps = {Step(1, 1), Step(2, 2), Step(3, 3)}, .validations = {Pass(2, 2)}})
          .ok());
  kind->Reopen();
  ASSERT_TRUE(store().Commit({.steps = {Step(1, 1), Step(2, 2)}}).ok());
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10),
            (std::vector<MetricsRow>{Step(1, 1), Step(2, 2), Step(3, 3)}));
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kValidations, "a", 0, 10),
            (std::vector<MetricsRow>{Pass(2, 2)}));
}

TEST_P(StoreTest, LateReportsOfAnOlderGenerationRemoveNothingOfANewerOne) {
  // Generation 2 continued from step 2. Generation 1 was cut off, and reports its steps late.
  ASSERT_TRUE(store()
                  .Commit({.steps = {Step(1, 1), Of(2, Step(3, 30)), Of(2, Step(4, 40))},
                           .validations = {Of(2, Pass(4, 40))}})
                  .ok());
  kind->Reopen();
  ASSERT_TRUE(store().Commit({.steps = {Step(2, 2)}, .validations = {Pass(2, 2)}}).ok());
  ASSERT_TRUE(store().Commit({.steps = {Step(3, 3)}, .validations = {Pass(4, 4)}}).ok());
  EXPECT_EQ(
      *store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10),
      (std::vector<MetricsRow>{Step(1, 1), Step(2, 2), Of(2, Step(3, 30)), Of(2, Step(4, 40))}));
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kValidations, "a", 0, 10),
            (std::vector<MetricsRow>{Pass(2, 2), Of(2, Pass(4, 40))}));
  // The next step of generation 2 removes nothing either.
  ASSERT_TRUE(store().Commit({.steps = {Of(2, Step(5, 50))}}).ok());
  EXPECT_EQ(StepsOf(store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10)),
            (std::vector<uint64_t>{1, 2, 3, 4, 5}));
}

TEST_P(StoreTest, LateReportsBeyondTheNewestStepAreIgnored) {
  // Generation 2 continued from step 2 and has computed step 3. Generation 1 had computed step 5.
  ASSERT_TRUE(store().Commit({.steps = {Step(1, 1), Step(2, 2), Of(2, Step(3, 30))}}).ok());
  const Batch late{.steps = {Step(4, 4), Step(5, 5)}, .validations = {Pass(5, 5)}};
  ASSERT_TRUE(store().Commit(late).ok());
  kind->Reopen();
  ASSERT_TRUE(store().Commit(late).ok());
  EXPECT_EQ(StepsOf(store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10)),
            (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(store().ReadMetrics(MetricsOf::kValidations, "a", 0, 10)->empty());
  // A row that fills a gap does not make later rows valid.
  ASSERT_TRUE(store().Commit({.steps = {Step(2, 2), Step(6, 6)}}).ok());
  EXPECT_EQ(StepsOf(store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10)),
            (std::vector<uint64_t>{1, 2, 3}));
}

TEST_P(StoreTest, OldStepsAreThinned) {
  constexpr uint64_t kSteps = 1000;
  std::vector<uint64_t> expected;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    if (metrics::Keeps(step, kSteps, kKept)) expected.push_back(step);
  }
  ASSERT_TRUE(store().Commit({.steps = {Step(1, 1, "b")}}).ok());
  for (uint64_t step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(store().Commit({.steps = {Step(step, 0.5 * step)}}).ok());
    if (step % 300 == 0) kind->Reopen();
  }
  const auto rows = store().ReadMetrics(MetricsOf::kSteps, "a", 0, 2 * kSteps);
  EXPECT_EQ(StepsOf(rows), expected);
  EXPECT_LE(rows->size(), kKept);
  // Each row is the row of one step, not an average.
  for (const MetricsRow& row : *rows) EXPECT_EQ(row, Step(row.step, 0.5 * row.step));
  EXPECT_EQ(store().ReadMetrics(MetricsOf::kSteps, "b", 0, 10)->size(), 1);
}

TEST_P(StoreTest, AStepThatIsComputedAgainIsThinnedLikeTheFirstOne) {
  Batch first, second;
  for (uint64_t step = 1; step <= 500; ++step) first.steps.push_back(Step(step, 1));
  ASSERT_TRUE(store().Commit(first).ok());
  // The generation continues from step 100, whose row was thinned out long ago.
  for (uint64_t step = 101; step <= 450; ++step) second.steps.push_back(Of(2, Step(step, 2)));
  ASSERT_TRUE(store().Commit(second).ok());
  const auto rows = store().ReadMetrics(MetricsOf::kSteps, "a", 0, 1000);
  EXPECT_LE(rows->size(), kKept);
  EXPECT_EQ(rows->back(), Of(2, Step(450, 2)));
  for (const MetricsRow& row : *rows) {
    EXPECT_TRUE(metrics::Keeps(row.step, 450, kKept)) << row.step;
    EXPECT_EQ(row, row.step <= 100 ? Step(row.step, 1) : Of(2, Step(row.step, 2)));
  }
}

TEST_P(StoreTest, OldPassesAreThinnedByTheirNumberNotByTheirStep) {
  constexpr uint64_t kPasses = 200;
  std::vector<uint64_t> expected;
  for (uint64_t pass = 1; pass <= kPasses; ++pass) {
    if (metrics::Keeps(pass, kPasses, kKept)) expected.push_back(7 * pass);
  }
  for (uint64_t pass = 1; pass <= kPasses; ++pass) {
    ASSERT_TRUE(store().Commit({.validations = {Pass(7 * pass, 1)}}).ok());
    if (pass % 70 == 0) kind->Reopen();
  }
  EXPECT_EQ(StepsOf(store().ReadMetrics(MetricsOf::kValidations, "a", 0, 2 * kPasses)), expected);
}

}  // namespace
}  // namespace muster::store
