#include "worker/models/spec_from_json.h"
#include "worker/train/setup.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "worker/comm/local/local_group.h"

namespace muster::train {
namespace {

class Samples : public data::Dataset {
 public:
  explicit Samples(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  absl::StatusOr<data::Batch> Read(std::span<const int64_t>) const override {
    return absl::UnimplementedError("not read");
  }
  data::Batch Blank(int64_t) const override { return {}; }

 private:
  const int64_t size_;
};

Job SmallJob() {
  Job job;
  job.model = {.spec = models::SpecFromText(
        "mlp", R"({"inputs": 4, "hidden": [3], "classes": 2})")};
  job.optimizer = OptimizerConfig{1e-3, optim::AdamWOptions{}};
  job.schedule = optim::WarmupCosine{.warmup_steps = 2, .total_steps = 9};
  job.stages = {FitStage{9, 0}};
  return job;
}

int64_t Fingerprint(const Job& job, int64_t train = 100, int64_t validate = 10) {
  const RankData train_data{.dataset = std::make_unique<Samples>(train)};
  const RankData validate_data{.dataset = std::make_unique<Samples>(validate)};
  return PlanFingerprint(job, **BuildModel(job), nullptr, &train_data, &validate_data);
}

TEST(PlanFingerprint, IsTheSameForTheSamePlan) {
  EXPECT_EQ(Fingerprint(SmallJob()), Fingerprint(SmallJob()));
}

TEST(PlanFingerprint, SeesWhatRanksMustAgreeOn) {
  const std::function<void(Job&)> changes[] = {
      [](Job& job) { job.optimizer->lr = 1.0000001e-3; },
      [](Job& job) { std::get<optim::AdamWOptions>(job.optimizer->kind).eps = 1e-7; },
      [](Job& job) { std::get<optim::WarmupCosine>(job.schedule).min_ratio = 0.1; },
      [](Job& job) { job.schedule = optim::Constant{}; },
      [](Job& job) { job.schedule = optim::Linear{.warmup_steps = 2, .total_steps = 9}; },
      [](Job& job) { job.optimizer->groups = {{.match = "*", .lr_scale = 1}}; },
      [](Job& job) { job.strategy = parallel::DdpOptions{.bucket_bytes = 1}; },
      [](Job& job) { job.strategy = parallel::ShardedDdpOptions{}; },
      [](Job& job) { job.precision = Precision::kBfloat16; },
      [](Job& job) { job.on_nan = OnNan::kSkipStep; },
      [](Job& job) { job.clip_grad_norm = 1; },
      [](Job& job) { job.model.loss = models::LossOptions{}; },
      [](Job& job) { job.model.loss = models::LossOptions{.ignore_index = 1}; },
      [](Job& job) { job.model.loss = models::LossOptions{.label_smoothing = 0.1}; },
      [](Job& job) { job.batch.accumulate = 2; },
      [](Job& job) { job.stages.push_back(ValidateStage{}); },
      [](Job& job) { job.model.spec = models::SpecFromText(
      "mlp", R"({"inputs": 4, "hidden": [5], "classes": 2})"); },
  };
  for (const auto& change : changes) {
    Job job = SmallJob();
    change(job);
    EXPECT_NE(Fingerprint(job), Fingerprint(SmallJob())) << &change - changes;
  }
}

// As another build might: one that puts parameters elsewhere.
TEST(PlanFingerprint, SeesWhatLiesWhere) {
  const Job job = SmallJob();
  const auto model = *BuildModel(job);
  const auto fingerprint = [&](int64_t bucket_bytes) {
    const auto ranks = comm::LocalGroup::Create(2);
    const auto strategy = *parallel::CreateDdp(model->Parameters(), {}, ranks[0].get(),
                                               {.bucket_bytes = bucket_bytes, .first_bucket_bytes = 1});
    return PlanFingerprint(job, *model, strategy.get(), nullptr, nullptr);
  };
  EXPECT_EQ(fingerprint(1), fingerprint(1));
  EXPECT_NE(fingerprint(1), fingerprint(1 << 20));
}

TEST(PlanFingerprint, SeesEverySettingOfSchedulesGroupsAndTheLossScale) {
  using optim::OneCycle, optim::StepDecay, optim::Linear;
  using Sharded = parallel::ShardedDdpOptions;
  const std::vector<std::vector<std::function<void(Job&)>>> alternatives = {
      {[](Job& job) { job.schedule = optim::Constant{}; },
       [](Job& job) { job.schedule = optim::Constant{1}; },
       [](Job& job) { job.schedule = Linear{1, 9, 0}; },
       [](Job& job) { job.schedule = Linear{2, 9, 0}; },
       [](Job& job) { job.schedule = Linear{1, 8, 0}; },
       [](Job& job) { job.schedule = Linear{1, 9, 0.5}; },
       [](Job& job) { job.schedule = StepDecay{1, 2, 0.5}; },
       [](Job& job) { job.schedule = StepDecay{0, 2, 0.5}; },
       [](Job& job) { job.schedule = StepDecay{1, 3, 0.5}; },
       [](Job& job) { job.schedule = StepDecay{1, 2, 0.25}; },
       [](Job& job) { job.schedule = OneCycle{}; },
       [](Job& job) { job.schedule = OneCycle{.total_steps = 2}; },
       [](Job& job) { job.schedule = OneCycle{.pct_start = 0.25}; },
       [](Job& job) { job.schedule = OneCycle{.div_factor = 2}; },
       [](Job& job) { job.schedule = OneCycle{.final_div_factor = 2}; },
       [](Job& job) { job.schedule = OneCycle{.anneal = OneCycle::Anneal::kLinear}; },
       [](Job& job) { job.schedule = OneCycle{.three_phase = true}; }},
      {[](Job& job) { job.optimizer->groups = {{.match = "a"}}; },
       [](Job& job) { job.optimizer->groups = {{.match = "b"}}; },
       [](Job& job) { job.optimizer->groups = {{.match = "a", .weight_decay = 0}}; },
       [](Job& job) { job.optimizer->groups = {{.match = "a", .lr_scale = 0}}; },
       [](Job& job) { job.optimizer->groups = {{.match = "a"}, {.match = "a"}}; }},
      {[](Job& job) { job.strategy = parallel::DdpOptions{}; },
       [](Job& job) { job.strategy = Sharded{}; },
       [](Job& job) { job.strategy = Sharded{.bucket_bytes = 1}; },
       [](Job& job) { job.strategy = Sharded{.reduce_every = Sharded::ReduceEvery::kMicroBatch}; },
       [](Job& job) { job.strategy = Sharded{.reduce_in_bfloat16 = true}; }},
      {[](Job& job) { job.precision = Precision::kFloat16; },
       [](Job& job) { job.precision = Precision::kFloat16, job.loss_scale.initial = 2; },
       [](Job& job) { job.precision = Precision::kFloat16, job.loss_scale.growth_factor = 3; },
       [](Job& job) { job.precision = Precision::kFloat16, job.loss_scale.backoff_factor = 0.25; },
       [](Job& job) { job.precision = Precision::kFloat16, job.loss_scale.growth_interval = 9; }}};
  for (const auto& group : alternatives) {
    std::set<int64_t> fingerprints;
    for (const auto& change : group) {
      Job job = SmallJob();
      change(job);
      fingerprints.insert(Fingerprint(job));
    }
    EXPECT_EQ(fingerprints.size(), group.size());
  }
}

TEST(BuildOptimizer, GivesEachParameterTheSettingsOfItsGroups) {
  Job job = SmallJob();
  job.optimizer = OptimizerConfig{0.5, optim::SgdOptions{.weight_decay = 0.25},
                                  {{.match = "*.bias", .weight_decay = 0}, {.match = "layers.1.*", .lr_scale = 0.5}}};
  const auto model = *BuildModel(job);
  const auto ranks = comm::LocalGroup::Create(1);
  const auto strategy = *BuildStrategy(job, *model, ranks[0].get());
  const auto optimizer = BuildOptimizer(*job.optimizer, *model, strategy->pieces());
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  const std::map<std::string, float> factors = {{"layers.0.weight", 1 - 0.5 * 0.25},
                                                {"layers.0.bias", 1},
                                                {"layers.1.weight", 1 - 0.5 * 0.5 * 0.25},
                                                {"layers.1.bias", 1}};
  for (const auto& [name, tensor] : model->Parameters()) {
    tensor.detach().fill_(2);
    tensor.mutable_grad() = at::zeros_like(tensor);
  }
  ASSERT_TRUE((*optimizer)->Step(0.5).ok());
  for (const auto& [name, tensor] : model->Parameters()) {
    EXPECT_EQ(tensor.detach().flatten()[0].item<float>(), 2 * factors.at(name)) << name;
  }
}

TEST(BuildOptimizer, RefusesAPatternThatMatchesNothing) {
  Job job = SmallJob();
  job.optimizer->groups = {{.match = "layer.*", .lr_scale = 2}};
  const auto status = BuildOptimizer(*job.optimizer, **BuildModel(job), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("optimizer.groups[0].match: found 'layer.*'"), std::string::npos)
      << status;
}

TEST(TrainingState, HoldsTheLossScalerWhereThereIsOne) {
  const auto model = *BuildModel(SmallJob());
  optim::LossScaler scaler({.initial = 8});
  const checkpoint::State with = TrainingState(*model, {.scaler = &scaler}, 1);
  EXPECT_EQ(with.items.size(), TrainingState(*model, {}, 1).items.size() + 2);
  const checkpoint::HeldPiece& scale = with.held[with.held.size() - 2];
  EXPECT_EQ(Name(with.items[scale.item]), "scaler/scale");
  EXPECT_EQ(scale.tensor.item<float>(), 8);
  scale.tensor.fill_(2);  // live
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_EQ(Name(with.items.back()), "scaler/growth_tracker");
}

TEST(PlanFingerprint, SeesDataSetsOfAnotherSize) {
  EXPECT_NE(Fingerprint(SmallJob(), 101), Fingerprint(SmallJob()));
  EXPECT_NE(Fingerprint(SmallJob(), 100, 11), Fingerprint(SmallJob()));
}

TEST(PlanFingerprint, RanksWithFilesOfTheirOwnAgreeOnAllSizesNotOnTheirOwn) {
  const auto fingerprint = [](int64_t own, std::vector<int64_t> all) {
    const RankData train{.dataset = std::make_unique<Samples>(own), .own_sizes = std::move(all)};
    return PlanFingerprint(SmallJob(), **BuildModel(SmallJob()), nullptr, &train, nullptr);
  };
  EXPECT_EQ(fingerprint(100, {100, 70}), fingerprint(70, {100, 70}));
  EXPECT_NE(fingerprint(100, {100, 70}), fingerprint(100, {100, 71}));
  EXPECT_NE(fingerprint(100, {100}), Fingerprint(SmallJob()));
}

TEST(PlanFingerprint, SeesBuffers) {
  class OneBuffer : public models::Unit {
   public:
    explicit OneBuffer(const std::string& name) : Unit("") {
      if (!name.empty()) AddBuffer(name, at::zeros({3}));
    }
    at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override { return x; }
  };
  class OneBufferModel : public models::Model {
   public:
    explicit OneBufferModel(const std::string& name) : Model("toy", std::make_unique<OneBuffer>(name)) {}
    models::InputSpec UnitsInput() const override { return {}; }
  };
  const auto fingerprint = [](const std::string& buffer) {
    return PlanFingerprint(SmallJob(), OneBufferModel(buffer), nullptr, nullptr, nullptr);
  };
  EXPECT_NE(fingerprint("a"), fingerprint(""));
  EXPECT_NE(fingerprint("a"), fingerprint("b"));
}

TEST(TrainingState, HoldsParametersBuffersAndTheOptimizersState) {
  Job job = SmallJob();
  job.model = {.spec = models::SpecFromText(
        "convnet", R"({"inputs": [1, 2, 2], "widths": [2], "blocks": [1], "classes": 2})")};
  const auto model = *BuildModel(job);
  std::map<std::string, int> slots;
  const auto ranks = comm::LocalGroup::Create(1);
  const auto strategy = *BuildStrategy(job, *model, ranks[0].get());
  const auto optimizer = *BuildOptimizer(*job.optimizer, *model, strategy->pieces());
  for (const auto& item : TrainingState(*model, {strategy.get(), optimizer.get()}, 1).items) ++slots[item.slot];
  EXPECT_EQ(slots, (std::map<std::string, int>{
                       {"param", 11}, {"buffer", 9}, {"exp_avg", 11}, {"exp_avg_sq", 11}, {"step", 11}}));
  // They are live: what is restored is what trains.
  for (const auto& piece : TrainingState(*model, {}, 1).held) piece.tensor.fill_(7);
  for (const auto& [name, tensor] : model->Parameters()) EXPECT_EQ(tensor.min().item<float>(), 7) << name;
  for (const auto& [name, tensor] : model->Buffers()) EXPECT_EQ(tensor.min().item<float>(), 7) << name;
}

}  // namespace
}  // namespace muster::train
