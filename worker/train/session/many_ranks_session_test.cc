// Sessions with more ranks than in the other tests. Every strategy is bitwise equal to ddp.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "worker/train/job/job.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session_fixture.h"

namespace muster::train {
namespace {

const StrategyConfig kStrategies[] = {
    parallel::DdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024},
    parallel::ShardedDdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024},
    parallel::FsdpOptions()};

// The parameter is the number of ranks.
class ManyRanks : public SessionTest, public testing::WithParamInterface<int> {
 protected:
  Job SixSteps() const {
    Job job = SmallJob();
    job.batch = {.per_rank = 2, .accumulate = 2};
    job.stages = {FitStage{6, 0}, ValidateStage{}};
    return job;
  }

  // Returns the loss of each step. Step 0 has the loss of the last validation pass.
  static std::map<int64_t, double> LossesOf(const Result& result) {
    for (const auto& end : result.ends) EXPECT_TRUE(end.ok()) << end.status();
    std::map<int64_t, double> losses = result.coordinator.losses();
    for (const auto& [step, loss] : result.coordinator.validations()) losses[0] = loss;
    return losses;
  }

  // Runs the job with every strategy and returns its losses. With each strategy, all ranks must
  // succeed, rank 0 must report every command as done, and the `numbers` losses must be those of
  // ddp.
  std::map<int64_t, double> ExpectTheBitsOfDdp(Job job, size_t numbers) {
    std::map<int64_t, double> expected;
    for (const StrategyConfig& strategy : kStrategies) {
      job.strategy = strategy;
      const auto result = RunSessions(job, GetParam());
      const auto losses = LossesOf(*result);
      EXPECT_EQ(losses.size(), numbers);
      if (expected.empty()) expected = losses;
      EXPECT_EQ(losses, expected) << "strategy " << strategy.index();
      const auto finished = result->coordinator.finished();
      EXPECT_EQ(finished.size(), commands_.size()) << "strategy " << strategy.index();
      for (const auto& [number, status] : finished) {
        EXPECT_TRUE(status.ok()) << "strategy " << strategy.index() << ", command " << number
                                 << ": " << status;
      }
    }
    return expected;
  }
};

INSTANTIATE_TEST_SUITE_P(All, ManyRanks, testing::Values(6, 8),
                         [](const auto& info) { return "Ranks" + std::to_string(info.param); });

TEST_P(ManyRanks, TrainAlikeInEveryStrategy) { ExpectTheBitsOfDdp(SixSteps(), 7); }

TEST_P(ManyRanks, FreezeAndUnfreezeAlikeInEveryStrategy) {
  const auto set = [](int64_t number, int64_t at_step, const TrainableRule& rule) {
    return Numbered(number, RulesOf({rule}), at_step);
  };
  const auto without_changes = LossesOf(*RunSessions(SixSteps(), GetParam()));
  commands_ = {set(1, 1, {true, "transformer.h.0.*"}), set(2, 3, {true, "*.weight"}),
               set(3, 5, {false, "*"})};
  const auto losses = ExpectTheBitsOfDdp(SixSteps(), 7);
  EXPECT_EQ(losses.at(1), without_changes.at(1));
  // The first change affects the update of step 2, and so the loss of step 3.
  for (const int64_t step : {3, 4, 5, 6, 0}) {
    EXPECT_NE(losses.at(step), without_changes.at(step)) << step;
  }
}

// An epoch has 149 samples. Its last batch is too small for all ranks.
TEST_P(ManyRanks, JoinAlikeInEveryStrategy) {
  Job job = SixSteps();
  job.batch.last = data::Last::kUneven;
  job.stages = {FitStage{10, 0}};
  ExpectTheBitsOfDdp(job, 10);
}

TEST_P(ManyRanks, ResumeFromACheckpointAlikeInEveryStrategy) {
  Job job = SixSteps();
  const auto undisturbed = LossesOf(*RunSessions(job, GetParam()));
  for (const StrategyConfig& strategy : kStrategies) {
    job.strategy = strategy;
    job.checkpoint = Every(3);
    job.checkpoint->directory = folder_ / std::to_string(strategy.index());
    const auto first = RunSessions(job, GetParam(), 1, {}, /*stop_after=*/3);
    ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
    ASSERT_TRUE(first->ends[0]->stopped);
    const auto second = RunSessions(job, GetParam(), 2, first->coordinator.checkpoints());
    auto losses = first->coordinator.losses();
    for (const auto& [step, loss] : LossesOf(*second)) losses[step] = loss;
    EXPECT_EQ(losses, undisturbed) << "strategy " << strategy.index();
  }
}

}  // namespace
}  // namespace muster::train
