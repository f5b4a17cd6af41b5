// Sessions of N ranks as threads with losses and gradients that are not finite, and with the loss
// scale of float16.
#include <ATen/core/Tensor.h>
#include <ATen/ops/item.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "worker/checkpoint/load.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

// Takes the reports of rank 0, and gives a stop command after a step has been reported.
class InMemoryCoordinator : public CommandSource, public EventSink {
 public:
  int64_t Newest() const override {
    std::lock_guard lock(mutex_);
    return stop_after_step > 0 && !steps_.empty() && steps_.rbegin()->first >= stop_after_step;
  }
  Command Get(int64_t number) const override { return Numbered(number, A(v1::StopCommand())); }
  void Report(const Event& event) override {
    std::lock_guard lock(mutex_);
    const auto* step = std::get_if<v1::StepMetrics>(&event);
    if (step != nullptr && !step->has_validation()) steps_[step->step()] = *step;
    if (const auto* written = std::get_if<CheckpointWritten>(&event)) {
      checkpoints_[written->step] = written->path;
    }
  }
  void Progress(int64_t step, const char*, const char*) override {
    std::lock_guard lock(mutex_);
    progress_ = std::max(progress_, step);
  }

  // Returns the steps done when the newest work began.
  int64_t progress() const { return progress_; }
  const std::map<int64_t, v1::StepMetrics>& steps() const { return steps_; }
  const std::map<int64_t, std::string>& checkpoints() const { return checkpoints_; }

  int64_t stop_after_step = 0;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, v1::StepMetrics> steps_;
  std::map<int64_t, std::string> checkpoints_;
  int64_t progress_ = 0;
};

struct Result {
  std::vector<absl::StatusOr<SessionEnd>> ends;
  InMemoryCoordinator coordinator;

  // Returns the error of all ranks, which is the same and permanent.
  std::string Error() const {
    for (const auto& end : ends) {
      EXPECT_EQ(end.status(), ends[0].status());
      EXPECT_EQ(Classify(end.status(), Phase::kRun), FailureKind::kPermanent) << end.status();
    }
    return std::string(ends[0].status().message());
  }
};

struct Row {
  std::vector<float> inputs;
  int64_t label = 0;
};

class NotFiniteTest : public ::testing::Test {
 protected:
  // Returns a job with `rows` as training data, in order. Each rank takes one row per step.
  Job JobOn(const std::vector<Row>& rows, int64_t steps, const std::string& hidden, int classes) {
    const int64_t count = rows.size(), width = rows[0].inputs.size();
    const auto plan = safetensors::Plan({{"inputs", safetensors::DType::kF32, {count, width}},
                                         {"labels", safetensors::DType::kI64, {count}}},
                                        {});
    std::string file = plan->prefix;
    for (const Row& row : rows) {
      file.append(reinterpret_cast<const char*>(row.inputs.data()), width * sizeof(float));
    }
    for (const Row& row : rows) file.append(reinterpret_cast<const char*>(&row.label), 8);
    EXPECT_TRUE(files::WriteAtomically(folder_.Path("rows.safetensors"), file).ok());

    Job job;
    job.seed = 3;
    *job.spec.mutable_model() =
        models::SpecFromText("mlp", absl::StrCat("{\"inputs\": ", width, ", \"hidden\": [", hidden,
                                                 "], \"classes\": ", classes, "}"));
    job.data.train = RowFiles{{folder_.Path("rows.safetensors")}};
    job.optimizer = OptimizerConfig{0.01, optim::AdamWOptions{}};
    job.batch = {.per_rank = 1, .order = data::Order::kSequential};
    job.stages = {FitStage{steps, 0}};
    return job;
  }

  // Returns twelve rows that can be learned. Rows 4 and 5 are step 3 of two ranks.
  std::vector<Row> GoodRows() const {
    std::vector<Row> rows;
    for (int i = 0; i < 12; ++i) {
      rows.push_back({{std::sin(i * 1.0f), std::cos(i * 2.0f), i % 3 - 1.0f}, i % 3});
    }
    return rows;
  }
  // Returns a job on these rows. Row 5 (step 3, rank 1) overflows in the first layer.
  Job JobWithARowThatOverflows(int64_t steps) {
    std::vector<Row> rows = GoodRows();
    rows[5].inputs = {3e38f, -3e38f, 3e38f};
    Job job = JobOn(rows, steps, "4", 3);
    ChooseSeed(job, rows[5]);
    return job;
  }

  // Chooses initial values with which the sum of `row` in a unit of the first layer exceeds
  // float32's range.
  void ChooseSeed(Job& job, const Row& row) {
    for (job.seed = 1;; ++job.seed) {
      const at::Tensor weight = (*BuildModel(job))->Parameters()[0].tensor.detach().flatten(1);
      for (int64_t unit = 0; unit < weight.size(0); ++unit) {
        double sum = 0;
        for (int64_t i = 0; i < weight.size(1); ++i) {
          sum += weight[unit][i].item<float>() * row.inputs[i];
        }
        if (sum > 3.8e38) return;
      }
    }
  }

  std::unique_ptr<Result> RunSessions(const Job& job, int world_size, int64_t generation = 1,
                                      int64_t stop_after = 0,
                                      std::vector<std::string> checkpoints = {}) {
    auto result = std::make_unique<Result>();
    result->coordinator.stop_after_step = stop_after;
    result->ends.assign(world_size, absl::UnknownError("did not run"));
    RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                             comm::Communicator& parameters, comm::Communicator& files) {
      const SessionParts parts{&control,
                               &data,
                               &parameters,
                               &files,
                               &result->coordinator,
                               &result->coordinator,
                               {.recorded = checkpoints}};
      auto session =
          Session::Create({"job", "instance", generation, rank, "incarnation"}, job, parts);
      result->ends[rank] = session.ok() ? (*session)->Run() : session.status();
    });
    return result;
  }

  // Returns a job with a convnet on images of 4 x 4. `row` is row 5: step 3 of the highest rank,
  // whose buffers all ranks use.
  Job ConvnetJob(const Row& row) {
    std::vector<Row> rows;
    for (int i = 0; i < 12; ++i) {
      rows.push_back({std::vector<float>(16), i % 3});
      for (int j = 0; j < 16; ++j) rows[i].inputs[j] = std::sin(i * 3.0f + j);
    }
    rows[5] = row;
    Job job = JobOn(rows, 4, "", 3);
    *job.spec.mutable_model() = models::SpecFromText(
        "convnet", R"({"inputs": [1, 4, 4], "widths": [4], "blocks": [1], "classes": 3})");
    job.checkpoint = EveryStep();
    return job;
  }

  CheckpointConfig EveryStep() { return {folder_.Path("ckpt"), 1}; }

  // Returns all tensors of a checkpoint of `job`, by slot and name.
  std::map<std::string, at::Tensor> Read(const Job& job, const std::string& checkpoint) {
    const auto model = *BuildModel(job);
    const auto ranks = comm::LocalGroup::Create(1);
    const auto strategy = *BuildStrategy(job, *model, ranks[0].get());
    const auto optimizer = *BuildOptimizer(*job.optimizer, *model, strategy->pieces());
    optim::LossScaler scaler(job.numerics.loss_scale);
    const bool scaled = job.numerics.precision == Precision::kFloat16;
    const ParameterSlots slots = *SlotsFor(*job.optimizer, *model);
    const checkpoint::State state = TrainingState(*model,
                                                  {.strategy = strategy.get(),
                                                   .optimizer = optimizer.get(),
                                                   .slots = &slots,
                                                   .scaler = scaled ? &scaler : nullptr},
                                                  1);
    const absl::Status loaded = checkpoint::Load(checkpoint, state).status();
    EXPECT_TRUE(loaded.ok()) << loaded;
    std::map<std::string, at::Tensor> tensors;
    for (const auto& piece : state.held) {
      tensors[Name(state.items[piece.item])] = piece.tensor.detach().clone();
    }
    return tensors;
  }

  files::TempDir folder_;
};

TEST_F(NotFiniteTest, ASkippedStepChangesNothingButTheScheduleAndTheData) {
  Job job = JobWithARowThatOverflows(5);
  job.numerics.on_nan = OnNan::kSkipStep;
  job.schedule = optim::Linear{.total_steps = 10};
  job.checkpoint = EveryStep();
  const auto run = RunSessions(job, 2);
  for (const auto& end : run->ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->step, 5);
  }
  for (const auto& [step, finished] : run->coordinator.steps()) {
    EXPECT_EQ(finished.skipped(), step == 3);
    EXPECT_EQ(std::isfinite(finished.loss()), step != 3);
    EXPECT_EQ(finished.has_grad_norm(), step != 3);
    EXPECT_NEAR(finished.learning_rate(), 0.01 * (1 - (step - 1) / 10.0), 1e-12);
  }
  const auto& checkpoints = run->coordinator.checkpoints();
  ASSERT_EQ(checkpoints.size(), 5);
  const auto before = Read(job, checkpoints.at(2)), after = Read(job, checkpoints.at(3));
  for (const auto& [name, tensor] : before) EXPECT_TRUE(tensor.equal(after.at(name))) << name;
  const auto next = Read(job, checkpoints.at(4));
  EXPECT_EQ(next.at("step/layers.0.bias").item<float>(), 3);  // steps 1, 2 and 4
  EXPECT_FALSE(next.at("param/layers.0.bias").equal(after.at("param/layers.0.bias")));
}

TEST_F(NotFiniteTest, ASkippedStepPutsBuffersBack) {
  const Row overflows{std::vector<float>(16, 3.4e38f), 2};
  Job job = ConvnetJob(overflows);
  ChooseSeed(job, overflows);
  job.numerics.on_nan = OnNan::kSkipStep;
  const auto run = RunSessions(job, 2);
  ASSERT_TRUE(run->ends[0].ok()) << run->ends[0].status();
  EXPECT_TRUE(run->coordinator.steps().at(3).skipped());
  const auto& checkpoints = run->coordinator.checkpoints();
  const auto before = Read(job, checkpoints.at(2)), after = Read(job, checkpoints.at(3));
  int buffers = 0;
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(tensor.equal(after.at(name))) << name;
    buffers += name.rfind("buffer/", 0) == 0;
  }
  EXPECT_GT(buffers, 3);
  EXPECT_FALSE(Read(job, checkpoints.at(4))
                   .at("buffer/bn1.running_mean")
                   .equal(after.at("buffer/bn1.running_mean")));
}

// With skip_step, all gradients are checked before the update. With fail, each bucket is updated
// right after its reduction, while other buckets are still being reduced.
TEST_F(NotFiniteTest, UpdatesBucketByBucketHaveTheBitsOfOneUpdateAfterACheckOfAllGradients) {
  const StrategyConfig strategies[] = {
      parallel::DdpOptions{.bucket_bytes = 1, .first_bucket_bytes = 1},
      parallel::ShardedDdpOptions{.bucket_bytes = 1, .first_bucket_bytes = 1},
      parallel::FsdpOptions{}};
  for (const StrategyConfig& strategy : strategies) {
    Job job = JobOn(GoodRows(), 6, "32, 32", 3);
    job.strategy = strategy;
    std::map<std::string, at::Tensor> states[2];
    for (const OnNan on_nan : {OnNan::kFail, OnNan::kSkipStep}) {
      const bool all = on_nan == OnNan::kSkipStep;
      job.numerics.on_nan = on_nan;
      job.checkpoint = {folder_.Path(absl::StrCat(StrategyName(strategy), all)), 1};
      const auto run = RunSessions(job, 2);
      ASSERT_TRUE(run->ends[0].ok()) << run->ends[0].status();
      EXPECT_EQ(run->coordinator.steps().at(6).has_grad_norm(), all);
      states[all] = Read(job, run->coordinator.checkpoints().at(6));
    }
    ASSERT_FALSE(states[0].empty());
    for (const auto& [name, tensor] : states[0]) {
      EXPECT_TRUE(tensor.equal(states[1].at(name))) << name << ", " << StrategyName(strategy);
    }
  }
}

// The square of the input does not fit into float32, so BatchNorm's running variance overflows. The
// normalization sums in float64, so loss and gradients are finite.
TEST_F(NotFiniteTest, ABufferThatOverflowsBehindAFiniteLossIsNotKept) {
  Row large{.label = 2};
  for (int i = 0; i < 16; ++i) large.inputs.push_back(1e25f * std::sin(i));
  Job job = ConvnetJob(large);
  job.checkpoint.reset();  // a save would also find the buffer
  const std::string error = RunSessions(job, 2)->Error();
  EXPECT_EQ(error.rfind("after step 3 buffer 'bn1.running_var' is not finite, so nothing of this "
                        "step is saved",
                        0),
            0)
      << error;

  job.numerics.on_nan = OnNan::kSkipStep;
  job.checkpoint = EveryStep();
  const auto run = RunSessions(job, 2);
  ASSERT_TRUE(run->ends[0].ok()) << run->ends[0].status();
  for (const auto& [step, finished] : run->coordinator.steps()) {
    EXPECT_TRUE(std::isfinite(finished.loss())) << step;
    EXPECT_TRUE(finished.has_grad_norm()) << step;
    EXPECT_EQ(finished.skipped(), step == 3) << step;
  }
  const auto& checkpoints = run->coordinator.checkpoints();
  const auto before = Read(job, checkpoints.at(2)), after = Read(job, checkpoints.at(3));
  for (const auto& [name, tensor] : before) EXPECT_TRUE(tensor.equal(after.at(name))) << name;
}

TEST_F(NotFiniteTest, ALossThatIsNotFiniteFailsTheJobBeforeTheNextStep) {
  const std::function<void(Job&)> ways[] = {
      [](Job&) {}, [](Job& job) { job.numerics.clip_grad_norm = 1; },
      [](Job& job) { job.numerics.precision = Precision::kBfloat16; },
      [](Job& job) { job.numerics.precision = Precision::kFloat16; }};
  for (const auto& way : ways) {
    Job job = JobWithARowThatOverflows(6);
    way(job);
    const auto run = RunSessions(job, 2);
    const std::string error = run->Error();
    EXPECT_NE(error.find("the loss of step 3 is not finite on rank 1 ("), std::string::npos)
        << error;
    EXPECT_EQ(run->coordinator.progress(), 2) << "no step after it began";
    const std::string what = job.numerics.precision == Precision::kFloat16
                                 ? "; the step was not applied; check"
                                 : "; no checkpoint and no export contains this step; check";
    EXPECT_NE(error.find(what), std::string::npos) << error;
  }
}

TEST_F(NotFiniteTest, AGradientThatIsNotFiniteFailsTheJobAlthoughTheLossIs) {
  // The larger logit is the same class in each row, so one of the two labels is wrong. The gradient
  // of this row, +-3.3e38 in two places, has a norm beyond float32.
  Job job = JobOn({{{3.3e38f}, 0}, {{3.3e38f}, 1}}, 2, "", 2);
  job.numerics.clip_grad_norm = 1;
  const std::string error = RunSessions(job, 1)->Error();
  EXPECT_NE(error.find("a gradient of step "), std::string::npos) << error;
  EXPECT_NE(error.find(" is not finite, although the loss is ("), std::string::npos) << error;
}

TEST_F(NotFiniteTest, ALossThatIsNotFiniteWithFiniteDerivativesIsSeenByAllRanks) {
  // The logits are so far apart that the loss of the lower one overflows; its derivative is 1.
  Job job = JobOn({{{0.5f}, 0}, {{3.3e38f}, 0}, {{0.5f}, 0}, {{0.5f}, 0}}, 2, "", 2);
  for (;; ++job.seed) {
    const at::Tensor weight = (*BuildModel(job))->Parameters()[0].tensor.detach().flatten();
    if (weight[1].item<float>() - weight[0].item<float>() > 1.1) break;
  }
  const std::string error = RunSessions(job, 2)->Error();
  EXPECT_NE(error.find("the loss of step 1 is not finite on rank 1 (inf); no checkpoint"),
            std::string::npos)
      << error;
  job.numerics.on_nan = OnNan::kSkipStep;
  const auto run = RunSessions(job, 2);
  ASSERT_TRUE(run->ends[0].ok()) << run->ends[0].status();
  EXPECT_TRUE(run->coordinator.steps().at(1).skipped());
  EXPECT_FALSE(run->coordinator.steps().at(2).skipped());
}

TEST_F(NotFiniteTest, ManySkippedStepsInARowFailTheJob) {
  const Row overflows{{3e38f, -3e38f}, 0}, good{{1, 2}, 1};
  Job job = JobOn({overflows, good}, 200, "4", 2);
  ChooseSeed(job, overflows);
  job.numerics.on_nan = OnNan::kSkipStep;
  const std::string error = RunSessions(job, 2)->Error();
  EXPECT_NE(error.find("all steps from 1 to 100 were skipped"), std::string::npos) << error;

  // One good step begins a new count. Here every second step is good.
  job.stages = {FitStage{210, 0}};
  const auto run = RunSessions(job, 1);
  EXPECT_TRUE(run->ends[0].ok()) << run->ends[0].status();
  EXPECT_TRUE(run->coordinator.steps().at(209).skipped());
}

TEST_F(NotFiniteTest, AnOverflowIsSkippedAlsoWhereWhatIsNotFiniteFailsTheJob) {
  Job job = JobOn(GoodRows(), 12, "4", 3);
  job.numerics.precision = Precision::kFloat16;
  job.numerics.loss_scale = {.initial = std::ldexp(1.0, 20), .growth_interval = 4};
  const auto run = RunSessions(job, 2);
  ASSERT_TRUE(run->ends[1].ok()) << run->ends[1].status();
  double scale = job.numerics.loss_scale.initial;
  int skipped = 0, good = 0;
  for (const auto& [step, finished] : run->coordinator.steps()) {
    EXPECT_EQ(finished.loss_scale(), scale) << step;
    EXPECT_TRUE(std::isfinite(finished.loss()));
    if (finished.skipped()) {
      scale /= 2;
      good = 0;
      ++skipped;
    } else if (++good == 4) {
      scale *= 2;
      good = 0;
    }
  }
  EXPECT_TRUE(run->coordinator.steps().at(1).skipped());
  EXPECT_GT(skipped, 1);
  EXPECT_LT(skipped, 10);
}

TEST_F(NotFiniteTest, TheLossScaleIsTakenOffTheGradientsBeforeTheyAreClipped) {
  Job job = JobOn(GoodRows(), 1, "4", 3);
  job.numerics.clip_grad_norm = 0.01;
  const double float32 = RunSessions(job, 2)->coordinator.steps().at(1).grad_norm();
  job.numerics.precision = Precision::kFloat16;
  job.numerics.loss_scale.initial = 1024;
  // The values are rounded to 11 bits a few times.
  EXPECT_NEAR(RunSessions(job, 2)->coordinator.steps().at(1).grad_norm() / float32, 1, 1e-2);
}

TEST_F(NotFiniteTest, AResumedRunOfFloat16IsBitwiseTheUndisturbedOne) {
  Job job = JobOn(GoodRows(), 16, "4", 3);
  job.numerics.precision = Precision::kFloat16;
  job.numerics.loss_scale = {.initial = std::ldexp(1.0, 18), .growth_interval = 3};
  const auto undisturbed = RunSessions(job, 2);
  ASSERT_TRUE(undisturbed->ends[0].ok()) << undisturbed->ends[0].status();
  job.checkpoint = EveryStep();
  const auto first = RunSessions(job, 2, 1, /*stop_after=*/7);
  ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
  ASSERT_TRUE(first->ends[0]->stopped);
  const auto second =
      RunSessions(job, 2, 2, 0, {first->coordinator.checkpoints().rbegin()->second});
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_GT(second->coordinator.steps().begin()->first, 6);
  for (const auto& [step, finished] : second->coordinator.steps()) {
    const v1::StepMetrics& expected = undisturbed->coordinator.steps().at(step);
    EXPECT_EQ(finished.loss(), expected.loss()) << step;
    EXPECT_EQ(finished.loss_scale(), expected.loss_scale()) << step;
    EXPECT_EQ(finished.skipped(), expected.skipped()) << step;
  }
  EXPECT_NE(undisturbed->coordinator.steps().at(16).loss_scale(), job.numerics.loss_scale.initial);
}

}  // namespace
}  // namespace muster::train
