// Sessions of more ranks than the other tests have: in every strategy the bits of ddp.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "worker/train/job.h"
#include "worker/train/outside.h"
#include "worker/train/session_fixture.h"

namespace muster::train {
namespace {

const StrategyConfig kStrategies[] = {
    parallel::DdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024},
    parallel::ShardedDdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024},
    parallel::FsdpOptions()};

// With so many ranks.
class ManyRanks : public SessionTest, public testing::WithParamInterface<int> {
 protected:
  Job SixSteps() const {
    Job job = SmallJob();
    job.batch = {.per_rank = 2, .accumulate = 2};
    job.stages = {FitStage{6, 0}, ValidateStage{}};
    return job;
  }

  // Losses of the steps and, as that of step 0, of the validation pass at the end.
  static std::map<int64_t, double> LossesOf(const Result& result) {
    for (const auto& end : result.ends) EXPECT_TRUE(end.ok()) << end.status();
    std::map<int64_t, double> losses = result.outside.losses();
    for (const auto& [step, loss] : result.outside.validations()) losses[0] = loss;
    return losses;
  }

  // Runs the job in every strategy; all are to give what ddp gives, and so many numbers.
  void ExpectTheBitsOfDdp(Job job, size_t numbers) {
    std::map<int64_t, double> expected;
    for (const StrategyConfig& strategy : kStrategies) {
      job.strategy = strategy;
      const auto losses = LossesOf(*RunSessions(job, GetParam()));
      EXPECT_EQ(losses.size(), numbers);
      if (expected.empty()) expected = losses;
      EXPECT_EQ(losses, expected) << "strategy " << strategy.index();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, ManyRanks, testing::Values(6, 8),
                         [](const auto& info) { return "Ranks" + std::to_string(info.param); });

TEST_P(ManyRanks, TrainAlikeInEveryStrategy) { ExpectTheBitsOfDdp(SixSteps(), 7); }

TEST_P(ManyRanks, FreezeAndUnfreezeAlikeInEveryStrategy) {
  const auto set = [](int64_t number, int64_t at_step, const TrainableRule& rule) {
    return Command{.number = number, .at_step = at_step, .what = SetTrainabilityCommand{{rule}}};
  };
  commands_ = {set(1, 1, {true, "transformer.h.0.*"}), set(2, 3, {true, "*.weight"}),
               set(3, 5, {false, "*"})};
  ExpectTheBitsOfDdp(SixSteps(), 7);
}

// The last batch of an epoch of 149 samples is not enough for all.
TEST_P(ManyRanks, JoinAlikeInEveryStrategy) {
  Job job = SixSteps();
  job.batch.last = data::Last::kUneven;
  job.stages = {FitStage{10, 0}};
  ExpectTheBitsOfDdp(job, 10);
}

TEST_P(ManyRanks, GoOnFromACheckpointAlikeInEveryStrategy) {
  Job job = SixSteps();
  const auto undisturbed = LossesOf(*RunSessions(job, GetParam()));
  for (const StrategyConfig& strategy : kStrategies) {
    job.strategy = strategy;
    job.checkpoint = Every(3);
    job.checkpoint->directory = folder_ / std::to_string(strategy.index());
    const auto first = RunSessions(job, GetParam(), 1, {}, /*stop_after=*/3);
    ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
    ASSERT_TRUE(first->ends[0]->stopped);
    const auto second = RunSessions(job, GetParam(), 2, first->outside.checkpoints());
    auto losses = first->outside.losses();
    for (const auto& [step, loss] : LossesOf(*second)) losses[step] = loss;
    EXPECT_EQ(losses, undisturbed) << "strategy " << strategy.index();
  }
}

}  // namespace
}  // namespace muster::train
