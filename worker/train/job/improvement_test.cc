#include "worker/train/job/improvement.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace muster::train {
namespace {

using manifest::ValidationRecord;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The results of passes after steps 10, 20, ... of a stage in generation 3. The pass that stops the
// stage is the last.
struct Passes {
  std::vector<bool> best;
  std::vector<bool> stop;
  ValidationRecord record;
  std::string why;
};
Passes RunPasses(const PassRules& rules, const std::vector<double>& losses, int64_t stage = 0,
                 ValidationRecord record = {}) {
  Passes passes{.record = std::move(record)};
  int64_t step = 0;
  for (const double loss : losses) {
    v1::Evaluation evaluation;
    evaluation.set_loss(loss);
    evaluation.set_accuracy(-loss);
    const Judgement judgement = Judge(
        rules, {.stage = stage, .step = step += 10, .generation = 3, .evaluation = &evaluation},
        std::move(passes.record));
    passes.record = judgement.record;
    passes.best.push_back(judgement.best);
    passes.stop.push_back(!judgement.stop.empty());
    passes.why = judgement.stop;
    if (passes.stop.back()) break;
  }
  return passes;
}

PassRules Stops(int64_t patience, double min_delta = 0, Criterion criterion = {}) {
  return {.early_stopping = EarlyStopping{criterion, patience, min_delta}, .keep_best = {}};
}
PassRules Keeps(Criterion criterion = {}) { return {.early_stopping = {}, .keep_best = criterion}; }

using Flags = std::vector<bool>;

TEST(EarlyStopping, EndsWithSoManyPassesInARowWithoutAnImprovement) {
  const Passes passes = RunPasses(Stops(2), {5, 4, 4, 3, 3.5, 3});
  EXPECT_EQ(passes.stop, (Flags{false, false, false, false, false, true}));
  EXPECT_EQ(passes.why,
            "the validation loss has not improved in 2 passes (patience: 2); the best was 3 after "
            "step 40");
}

TEST(EarlyStopping, AnImprovementIsMoreThanMinDeltaBelowTheBestOne) {
  // Steps of 0.5 are no improvement. The best loss stays 5 until 4.25; it never becomes 4.5.
  EXPECT_EQ(RunPasses(Stops(2, 0.5), {5, 4.5, 4.25, 9}).stop, (Flags{false, false, false, false}));
  const Passes passes = RunPasses(Stops(2, 0.5), {5, 4.5, 4.5, 1});
  EXPECT_EQ(passes.stop, (Flags{false, false, true}));
  EXPECT_NE(passes.why.find("by more than 0.5"), std::string::npos) << passes.why;
}

TEST(EarlyStopping, WithLargerIsBetterItIsMoreThanMinDeltaAbove) {
  const Criterion accuracy{Metric::kAccuracy, /*larger_is_better=*/true};
  EXPECT_EQ(RunPasses(Stops(1, 0.5, accuracy), {5, 4, 3.5}).stop, (Flags{false, false, true}));
}

TEST(EarlyStopping, ANumberThatIsNotFiniteIsNeverAnImprovement) {
  EXPECT_EQ(RunPasses(Stops(2), {kNan, 7, kNan, -kInfinity}).stop,
            (Flags{false, false, false, true}));
  const Passes never = RunPasses(Stops(2), {kNan, kInfinity});
  EXPECT_EQ(never.stop, (Flags{false, true}));
  EXPECT_NE(never.why.find("it was never finite"), std::string::npos) << never.why;
}

TEST(EarlyStopping, EachStageBeginsAnew) {
  ValidationRecord record = RunPasses(Stops(2), {1, 2}).record;
  EXPECT_EQ(record.patience->passes, 1);
  // Losses that are all worse than those of the first stage.
  const Passes second = RunPasses(Stops(2), {9, 8, 8, 8}, /*stage=*/2, record);
  EXPECT_EQ(second.stop, (Flags{false, false, false, true}));
  // A session in the middle of the stage continues the count.
  EXPECT_EQ(RunPasses(Stops(2), {2}, /*stage=*/0, record).stop, (Flags{true}));
}

TEST(KeepBest, IsWhatIsBetterThanAllBeforeInTheJob) {
  const Passes passes = RunPasses(Keeps(), {5, 5, 4, 4.5, kNan, -kInfinity, 3.99});
  EXPECT_EQ(passes.best, (Flags{true, false, true, false, false, false, true}));
  const ValidationRecord::Best expected{.step = 70, .generation = 3, .value = 3.99};
  EXPECT_EQ(passes.record.best, expected);
  // The best loss is that of the job: the second stage does not start again.
  EXPECT_EQ(RunPasses(Keeps(), {4, 3.98}, /*stage=*/1, passes.record).best, (Flags{false, true}));
}

TEST(KeepBest, DoesNotKnowTheMinDeltaOfEarlyStopping) {
  PassRules rules = Stops(1, 0.5);
  rules.keep_best = Criterion{};
  const Passes passes = RunPasses(rules, {5, 4.9});
  EXPECT_EQ(passes.best, (Flags{true, true}));
  EXPECT_EQ(passes.stop, (Flags{false, true}));
}

TEST(Metrics, ThatValidationDoesNotGiveAreRefused) {
  PassRules rules = Stops(1);
  rules.keep_best = Criterion{Metric::kTopKAccuracy, true};
  EXPECT_TRUE(CheckMetrics(rules, {Metric::kLoss, Metric::kTopKAccuracy}, 1).ok());
  const absl::Status refused = CheckMetrics(rules, {Metric::kLoss, Metric::kAccuracy}, 1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "stages[1].fit.keep_best.metric: found top_k_accuracy, which the validation of this "
            "model with this loss does not give; allowed: loss, accuracy");
  v1::Evaluation evaluation;
  EXPECT_FALSE(CheckMetrics(rules, GivenBy(evaluation), 0).ok());
  evaluation.set_top_k_accuracy(0);
  EXPECT_TRUE(CheckMetrics(rules, GivenBy(evaluation), 0).ok());
}

}  // namespace
}  // namespace muster::train
