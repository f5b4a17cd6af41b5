// Freezing and unfreezing by commands and by model code, in sessions of N ranks as threads.
// tests/parity/refresh_test.py compares the numbers with PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class InMemoryCoordinator : public CommandSource, public EventSink {
 public:
  explicit InMemoryCoordinator(std::vector<Command> commands) : commands_(std::move(commands)) {}
  int64_t Newest() const override { return static_cast<int64_t>(commands_.size()); }
  Command Get(int64_t number) const override { return commands_[number - 1]; }
  void Report(const Event& event) override {
    const std::lock_guard lock(mutex_);
    if (const auto* in_force = std::get_if<TrainabilityReport>(&event)) {
      in_force_.push_back(*in_force);
    }
    if (const auto* finished = std::get_if<CommandFinished>(&event)) {
      finished_[finished->number] = *finished;
    }
  }
  void Progress(int64_t, const char*, const char*) override {}

  // Returns the reported changes. "2: after 3 -weight": version 2 froze `weight` after step 3.
  std::vector<std::string> changes() const {
    std::vector<std::string> texts;
    for (const TrainabilityReport& in_force : in_force_) {
      if (!in_force.change.has_value()) continue;
      std::string text = absl::StrCat(in_force.version, ": after ", in_force.change->step);
      for (const auto& name : in_force.change->frozen) absl::StrAppend(&text, " -", name);
      for (const auto& name : in_force.change->unfrozen) absl::StrAppend(&text, " +", name);
      texts.push_back(std::move(text));
    }
    return texts;
  }
  const std::vector<TrainabilityReport>& in_force() const { return in_force_; }
  const std::map<int64_t, CommandFinished>& finished() const { return finished_; }

 private:
  const std::vector<Command> commands_;
  std::mutex mutex_;
  std::vector<TrainabilityReport> in_force_;
  std::map<int64_t, CommandFinished> finished_;
};

struct Result {
  std::vector<absl::StatusOr<SessionEnd>> ends;
  std::unique_ptr<InMemoryCoordinator> coordinator;
};

class TrainabilitySession : public testing::Test {
 protected:
  void SetUp() override {
    constexpr int64_t kRows = 24;
    const auto plan = safetensors::Plan({{"inputs", safetensors::DType::kF32, {kRows, 3}},
                                         {"labels", safetensors::DType::kI64, {kRows}}},
                                        {});
    std::string file = plan->prefix;
    for (int64_t i = 0; i < kRows * 3; ++i) {
      const float value = static_cast<float>(i % 7) - 3;
      file.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    for (int64_t i = 0; i < kRows; ++i) {
      const int64_t label = i % 2;
      file.append(reinterpret_cast<const char*>(&label), sizeof(label));
    }
    ASSERT_TRUE(files::WriteAtomically(folder_.Path("rows.safetensors"), file).ok());
  }

  Job JobOf(v1::ModelSpec model, int64_t steps) {
    Job job;
    job.seed = 3;
    *job.spec.mutable_model() = std::move(model);
    job.data.train = RowFiles{{folder_.Path("rows.safetensors")}};
    job.optimizer = OptimizerConfig{0.01, optim::AdamWOptions{}};
    job.batch = {.per_rank = 2};
    job.stages = {FitStage{steps, 0}};
    return job;
  }
  Job PluginJob(const std::string& fault, int64_t steps = 6) {
    return JobOf(
        models::SpecFromText(
            "plugin",
            absl::StrCat(R"({"path": "worker/models/plugin/plugin_faults.so", "name": "faulty", )",
                         R"("options": {"fault": ")", fault, R"(", "path": ")",
                         folder_.Path("first"), R"("}})")),
        steps);
  }
  Job MlpJob(int64_t steps = 6) {
    return JobOf(models::SpecFromText("mlp", R"({"inputs": 3, "hidden": [33, 18], "classes": 2})"),
                 steps);
  }

  // Returns the number of collectives that rank 0 of two has begun, in a job whose model has this
  // hook.
  int64_t CollectivesWith(const std::string& hook, const StrategyConfig& strategy,
                          RefreshMode refresh) {
    Job job = PluginJob(hook);
    job.strategy = strategy;
    job.model.refresh = refresh;
    comm::FlightRecorder flight;
    flight_ = &flight;
    ExpectDone(Run(job, 2));
    flight_ = nullptr;
    return static_cast<int64_t>(flight.digest().begun);
  }
  // Returns the weights at the end of a job.
  std::string WeightsAfter(const std::string& hook, const StrategyConfig& strategy) {
    Job job = PluginJob(hook);
    job.strategy = strategy;
    job.batch.accumulate = 2;
    job.weights_export = {.path = folder_.Path("weights"), .overwrite = true, .job_name = "job"};
    ExpectDone(Run(job, 2));
    return *files::ReadFile(folder_.Path("weights"));
  }

  Result Run(const Job& job, int world_size, std::vector<Command> commands = {}) {
    for (size_t i = 0; i < commands.size(); ++i) commands[i].set_number(i + 1);
    Result result{.ends = std::vector<absl::StatusOr<SessionEnd>>(world_size),
                  .coordinator = std::make_unique<InMemoryCoordinator>(std::move(commands))};
    RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                             comm::Communicator& parameters, comm::Communicator& files) {
      SessionParts parts{
          &control, &data, &parameters, &files, result.coordinator.get(), result.coordinator.get(),
          {}};
      if (rank == 0) parts.flight = flight_;
      const auto session = Session::Create({"job", "instance", 1, rank, "i"}, job, parts);
      result.ends[rank] = session.ok() ? (*session)->Run() : session.status();
      if (!result.ends[rank].ok()) control.Abort(result.ends[rank].status());
      if (!result.ends[rank].ok()) data.Abort(result.ends[rank].status());
    });
    return result;
  }
  static void ExpectDone(const Result& result) {
    for (const auto& end : result.ends) EXPECT_TRUE(end.ok()) << end.status();
  }

  files::TempDir folder_;
  comm::FlightRecorder* flight_ = nullptr;  // rank 0's
};

const StrategyConfig kStrategies[] = {parallel::DdpOptions(), parallel::ShardedDdpOptions(),
                                      parallel::FsdpOptions()};

Command Set(std::vector<TrainableRule> rules, int64_t at_step, bool dry_run = false) {
  return At(at_step, RulesOf(std::move(rules), dry_run));
}

TEST_F(TrainabilitySession, WhatModelCodeFreezesTakesEffectWithThatStep) {
  for (const StrategyConfig& strategy : kStrategies) {
    Job job = PluginJob("steers-in-turn");
    job.strategy = strategy;
    const Result result = Run(job, 2);
    ExpectDone(result);
    EXPECT_THAT(result.coordinator->changes(),
                ElementsAre("2: after 1 -weight", "3: after 2 +weight", "4: after 3 -weight",
                            "5: after 4 +weight", "6: after 5 -weight"));
    EXPECT_EQ(result.coordinator->in_force().back().rules,
              (std::vector<TrainableRule>{{true, "weight"}}));
  }
}

TEST_F(TrainabilitySession, WhatModelCodeFreezesWaitsForACommandWhereTheJobSaysSo) {
  Job job = PluginJob("steers-in-turn");
  job.model.refresh = RefreshMode::kManual;
  const Result result =
      Run(job, 2, {At(3, A(v1::RefreshCommand())), At(4, A(v1::RefreshCommand()))});
  ExpectDone(result);
  // After 3 steps no change is pending, because step 3 unfroze the weight again. Before step 4 the
  // hook froze the weight.
  EXPECT_THAT(result.coordinator->changes(), ElementsAre("2: after 4 -weight"));
  std::vector<std::string> pending;
  for (const auto& in_force : result.coordinator->in_force()) {
    pending.push_back(absl::StrCat(in_force.version, in_force.pending.empty() ? "" : " weight"));
  }
  EXPECT_THAT(pending, ElementsAre("1", "1 weight", "1", "1 weight", "2", "2 weight", "2"));
}

TEST_F(TrainabilitySession, WhatAnOperatorChangesIsNotUndoneByARefreshOfWhatModelCodeWants) {
  Job job = PluginJob("steers-in-turn", 5);
  job.model.refresh = RefreshMode::kManual;
  // Before step 2 the code freezes the weight. The refresh after step 4 finds this change.
  const Result result = Run(job, 2, {Set({{true, "bias"}}, 2), At(4, A(v1::RefreshCommand()))});
  ExpectDone(result);
  EXPECT_THAT(result.coordinator->changes(), ElementsAre("2: after 2 -bias", "3: after 4 -weight"));
}

TEST_F(TrainabilitySession, RanksThatDifferInAMaskAreNamedWithTheParameter) {
  for (const StrategyConfig& strategy : kStrategies) {
    Job job = PluginJob("steers-one-rank");
    job.strategy = strategy;
    std::filesystem::remove(folder_.Path("first"));
    const Result result = Run(job, 3);
    for (const auto& end : result.ends) {
      EXPECT_EQ(end.status().code(), absl::StatusCode::kFailedPrecondition) << end.status();
      EXPECT_THAT(std::string(end.status().message()),
                  HasSubstr("roll call of step 3: the ranks differ in which parameters are "
                            "trained: 'weight' was frozen or "
                            "unfrozen on rank "));
    }
  }
}

TEST_F(TrainabilitySession, FreezingWhileAStepRunsEndsTheJobByName) {
  Job job = PluginJob("steers-in-forward");
  job.batch.accumulate = 2;
  const Result result = Run(job, 1);
  EXPECT_EQ(result.ends[0].status(),
            absl::FailedPreconditionError(
                "rank 0: model code has frozen parameter 'weight' in step 2; only the step hook "
                "may do that, between two steps"));
}

TEST_F(TrainabilitySession, AHookThatOnlyFlipsFlagsGathersNothingAndHeldBackNeedsNoRollCall) {
  for (const StrategyConfig& strategy : kStrategies) {
    const int64_t without = CollectivesWith("no-hook", strategy, RefreshMode::kAuto);
    EXPECT_EQ(CollectivesWith("flags-idle", strategy, RefreshMode::kManual), without);
    // Each of six steps has one more roll call.
    EXPECT_EQ(CollectivesWith("flags-idle", strategy, RefreshMode::kAuto), without + 6);
  }
}

TEST_F(TrainabilitySession, AFlagHookThatWritesAValueEndsTheJobByName) {
  for (const StrategyConfig& strategy : kStrategies) {
    Job job = PluginJob("flags-writes");
    job.strategy = strategy;
    for (const auto& end : Run(job, 2).ends) {
      EXPECT_EQ(end.status().code(), absl::StatusCode::kFailedPrecondition) << end.status();
      EXPECT_THAT(std::string(end.status().message()), HasSubstr("it writes parameter 'weight'"));
    }
  }
}

TEST_F(TrainabilitySession, GradientsThatModelCodeClearsBetweenStepsChangeNothing) {
  for (const StrategyConfig& strategy : kStrategies) {
    const std::string expected = WeightsAfter("no-hook", strategy);
    EXPECT_EQ(WeightsAfter("hook-zeroes-gradients", strategy), expected);
    EXPECT_EQ(WeightsAfter("hook-drops-gradients", strategy), expected);
  }
}

TEST_F(TrainabilitySession, AHookThatChangedNothingForAThousandStepsIsNamedOnce) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  ExpectDone(Run(PluginJob("flags-idle", 2010), 1));
  spdlog::set_default_logger(before);
  const std::string told = "changed nothing in the last 1000 steps";
  const std::string text = log.str();
  EXPECT_NE(text.find(told), std::string::npos) << text;
  EXPECT_EQ(text.find(told), text.rfind(told));
  EXPECT_THAT(text,
              HasSubstr("the step hook of plug-in worker/models/plugin/plugin_faults.so: model "
                        "'faulty' changed nothing"));
}

TEST_F(TrainabilitySession, AForesightIsWhatHappens) {
  for (const StrategyConfig& strategy : kStrategies) {
    Job job = MlpJob();
    job.strategy = strategy;
    const std::vector<TrainableRule> rules = {{true, "layers.0.*"}, {true, "layers.2.bias"}};
    const std::vector<TrainableRule> back = {{false, "layers.0.weight"}};
    const Result result = Run(job, 3,
                              {Set(rules, 2, /*dry_run=*/true), Set(rules, 2),
                               Set(back, 4, /*dry_run=*/true), Set(back, 4)});
    ExpectDone(result);
    for (const int64_t number : {1, 3}) {
      const auto& plan =
          std::get<TrainabilityPlan>(result.coordinator->finished().at(number).result);
      const auto& change =
          std::get<TrainabilityChange>(result.coordinator->finished().at(number + 1).result);
      // A plan does not count the scalars, which are AdamW's steps.
      EXPECT_NEAR(static_cast<double>(plan.change.bytes_moved),
                  static_cast<double>(change.bytes_moved), 6 * 3 * 4);
      EXPECT_EQ(plan.change.frozen, change.frozen);
      EXPECT_EQ(plan.change.unfrozen, change.unfrozen);
      EXPECT_EQ(plan.change.trained, change.trained);
      EXPECT_EQ(plan.ranks.size(), 3);
    }
    EXPECT_THAT(result.coordinator->changes(),
                ElementsAre("2: after 2 -layers.0.weight -layers.0.bias -layers.2.bias",
                            "3: after 4 +layers.0.weight"));
  }
}

// Commands that the job cannot carry out. The coordinator accepted them before it could know.
TEST_F(TrainabilitySession, AFailedCommandSaysToProgramsWhy) {
  const auto reasons = [](const Result& result) {
    std::vector<std::string> found;
    for (const auto& [number, finished] : result.coordinator->finished()) {
      EXPECT_FALSE(finished.status.ok()) << number;
      found.push_back(finished.reason);
    }
    return found;
  };
  const Command save = A(v1::SaveCheckpointCommand());
  const Command rate = RateOf(0.1);
  const Command refresh = A(v1::RefreshCommand());
  const Command none = Set({{true, "absent.*"}}, 0);
  EXPECT_THAT(reasons(Run(MlpJob(), 2, {save, none})),
              ElementsAre("NO_CHECKPOINTS", "TRAINABILITY_INVALID"));
  Job job = MlpJob();
  job.data.validate = job.data.train;
  job.stages = {ValidateStage()};
  job.checkpoint = CheckpointConfig{folder_.Path("checkpoints"), 0};
  EXPECT_THAT(reasons(Run(job, 2, {save, rate, refresh, none})),
              ElementsAre("NO_OPTIMIZER", "NO_OPTIMIZER", "NO_OPTIMIZER", "NO_OPTIMIZER"));
  const Command late = At(3, RateOf(0.1));
  const auto cancelled = Run(MlpJob(), 2, {late, CancelOf(1), CancelOf(1)});
  const auto& finished = cancelled.coordinator->finished();
  EXPECT_EQ(finished.at(1).reason, "OPERATION_CANCELLED");
  EXPECT_TRUE(finished.at(2).status.ok());
  EXPECT_EQ(finished.at(3).reason, "OPERATION_APPLIED");
}

TEST_F(TrainabilitySession, ACommandThatFitsNothingFailsAloneAndTrainingGoesOn) {
  const Result result = Run(MlpJob(), 2, {Set({{true, "layer.0.*"}}, 2), Set({{true, "*"}}, 3)});
  ExpectDone(result);
  EXPECT_EQ(result.coordinator->finished().at(1).status,
            absl::InvalidArgumentError(
                "no parameter has a name that matches 'layer.0.*'; did you mean 'layers.0.*'?"));
  EXPECT_EQ(result.coordinator->changes().size(), 1);
}

}  // namespace
}  // namespace muster::train
