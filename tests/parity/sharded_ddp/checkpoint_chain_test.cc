// Tests of a job's checkpoint that passes from strategy to strategy, with steps in between. The
// chain is ddp on 1 rank, sharded_ddp on 4, ddp on 2, sharded_ddp on 3, fsdp on 2, ddp on 3 and
// fsdp on 4.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/files/temp_dir.h"
#include "gtest/gtest.h"
#include "tests/parity/sharded_ddp/training.h"
#include "worker/checkpoint/saver.h"
#include "worker/comm/local/local_group.h"
#include "worker/parallel/test_model.h"

namespace muster::parity {
namespace {

enum class StrategyKind { kDdp, kShardedDdp, kFsdp };

struct Segment {
  int world_size = 1;
  StrategyKind strategy = StrategyKind::kDdp;
  // The same global batch everywhere.
  int64_t per_rank = 12;
  int64_t accumulate = 1;
};

constexpr Segment kChain[] = {{1, StrategyKind::kDdp, 6, 2},  {4, StrategyKind::kShardedDdp, 3, 1},
                              {2, StrategyKind::kDdp, 3, 2},  {3, StrategyKind::kShardedDdp, 2, 2},
                              {2, StrategyKind::kFsdp, 3, 2}, {3, StrategyKind::kDdp, 4, 1},
                              {4, StrategyKind::kFsdp, 3, 1}};
constexpr int64_t kStepsOfSegment = 3;

train::StrategyConfig ConfigOf(StrategyKind kind) {
  switch (kind) {
    case StrategyKind::kDdp:
      return Ddp();
    case StrategyKind::kShardedDdp:
      return ShardedDdp(ReduceEvery::kStep);
    case StrategyKind::kFsdp:
      break;
  }
  return parallel::FsdpOptions();
}

struct Trained {
  State restored;  // right after the load, where there was one
  State after;
  std::vector<double> losses;
  std::string checkpoint;
};

// Continues from the checkpoint `from` (empty: begins anew), and saves.
Trained RunSegment(const Case& one, const Segment& segment, int64_t steps,
                   const std::string& directory, const std::string& from) {
  const auto strategy = ConfigOf(segment.strategy);
  const bool sharded = segment.strategy != StrategyKind::kDdp;
  train::Job job = JobOf(one, strategy);
  job.batch.per_rank = segment.per_rank;
  job.batch.accumulate = segment.accumulate;
  std::vector<RankState> restored(segment.world_size);
  std::vector<RankState> after(segment.world_size);
  std::vector<std::vector<double>> sums(segment.world_size);
  Trained trained;
  auto control = comm::LocalGroup::Create(segment.world_size);
  parallel::RunRanks(segment.world_size, [&](comm::Communicator& ranks) {
    const int rank = ranks.rank();
    const auto own_control = std::move(control[rank]);
    RankTraining training(job, MakeWorkload(one.model, {.dropout = 0, .head = at::kFloat}), &ranks);
    ASSERT_TRUE(training.ok());
    checkpoint::Saver saver({.directory = directory,
                             .job = "chain",
                             .generation = 1,
                             .strategy = train::StrategyName(strategy),
                             .model_kind = "any"},
                            own_control.get());
    if (!from.empty()) {
      const auto outcome = saver.Restore({from}, training.Live());
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      ASSERT_TRUE(outcome->status.ok()) << outcome->status;
      const auto& manifest = outcome->manifest;
      training.ContinueFrom(manifest.step, {.epoch = manifest.epoch, .cursor = manifest.cursor});
      restored[rank] = training.Copy(/*with_parameters=*/true);
    }
    for (int64_t step = 0; step < steps; ++step) {
      const auto result = training.Step();
      ASSERT_TRUE(result.ok()) << result.status();
      sums[rank].push_back(result->loss_sum);
    }
    ASSERT_TRUE(training.strategy().AwaitParameters().ok());
    after[rank] = training.Copy(/*with_parameters=*/true);
    const auto saved = saver.Save({.step = training.steps_done(),
                                   .epoch = training.position().epoch,
                                   .cursor = training.position().cursor},
                                  training.Live());
    ASSERT_TRUE(saved.ok()) << saved.status();
    ASSERT_TRUE(saved->status.ok()) << saved->status;
    if (rank == 0) trained.checkpoint = saved->name;
  });
  if (testing::Test::HasFailure()) return trained;
  if (!from.empty()) trained.restored = PutTogether(restored, sharded);
  trained.after = PutTogether(after, sharded);
  for (int64_t step = 0; step < steps; ++step) {
    double sum = 0;
    for (const auto& of_rank : sums) sum += of_rank[step];
    trained.losses.push_back(sum / static_cast<double>(segment.world_size * segment.accumulate));
  }
  return trained;
}

void ExpectEqual(const NamedTensors& found, const NamedTensors& expected) {
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    const auto one = found.find(name);
    EXPECT_TRUE(one != found.end() && parallel::SameBits(one->second, tensor)) << name;
  }
}

class CheckpointChain : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    All, CheckpointChain,
    testing::Values(Case{.model = ModelKind::kGpt2},
                    Case{.model = ModelKind::kGpt2,
                         .optimizer = OptimizerKind::kSgdMomentum,
                         .clip = Clip::kOn},
                    // Buffers, a loss scale.
                    Case{.model = ModelKind::kConvnet, .precision = PrecisionKind::kFloat16},
                    // Frozen, integer, empty and unused parameters.
                    Case{.model = ModelKind::kMixed},
                    Case{.model = ModelKind::kMixed, .optimizer = OptimizerKind::kSgdMomentum},
                    Case{.model = ModelKind::kGpt2, .optimizer = OptimizerKind::kLion},
                    Case{.model = ModelKind::kMixed, .optimizer = OptimizerKind::kLion},
                    Case{.model = ModelKind::kMixed, .optimizer = OptimizerKind::kAdadelta},
                    Case{.model = ModelKind::kMixed, .optimizer = OptimizerKind::kSeveral}),
    [](const auto& info) { return Name(info.param); });

TEST_P(CheckpointChain, EachLoadRestoresEveryElementAndLossesGoOn) {
  const Case one = GetParam();
  const files::TempDir directory;
  Trained before;
  std::vector<double> losses;
  for (const Segment& segment : kChain) {
    SCOPED_TRACE(testing::Message() << train::StrategyName(ConfigOf(segment.strategy)) << " on "
                                    << segment.world_size);
    Trained now = RunSegment(one, segment, kStepsOfSegment, directory.path(), before.checkpoint);
    if (HasFailure()) return;
    if (!before.checkpoint.empty()) {
      ExpectEqual(now.restored.parameters, before.after.parameters);
      ExpectEqual(now.restored.others, before.after.others);
      ExpectEqual(now.restored.optimizer, before.after.optimizer);
    }
    losses.insert(losses.end(), now.losses.begin(), now.losses.end());
    before = std::move(now);
  }
  // The comparison needs a sample's part of the loss to be independent of other samples in the
  // micro-batch. Excluded are BatchNorm, and models whose first sample decides which parameters are
  // used.
  if (one.model != ModelKind::kGpt2) return;
  const files::TempDir another;
  const Trained undisturbed = RunSegment(one, kChain[0], losses.size(), another.path(), "");
  ASSERT_EQ(undisturbed.losses.size(), losses.size());
  // The tolerance: sums over ranks and micro-batches are split in other places, and parameters
  // follow.
  for (size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], undisturbed.losses[step], 1e-5) << "step " << step + 1;
  }
  EXPECT_GT(std::abs(losses.front() - losses.back()), 1e-3);  // it trains
}

}  // namespace
}  // namespace muster::parity
