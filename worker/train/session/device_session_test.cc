// Sessions whose model is on a device other than the CPU, compared with the same sessions on the
// CPU. LibTorch composes some operations of others on such a device (layer_norm), with rounding at
// other places. The bound for losses is 1e-5: 80 rounding errors of float32 at this size.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/safetensors/safetensors.h"
#include "worker/device/stand_in/stand_in_device.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session_fixture.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

class DeviceSessionTest : public SessionTest {
 protected:
  // SGD, because AdamW turns rounding errors of gradients into whole steps.
  Job DeviceJob(const StrategyConfig& strategy) const {
    Job job = SmallJob();
    job.strategy = strategy;
    job.optimizer = OptimizerConfig{0.1, optim::SgdOptions{.momentum = 0.9}};
    job.stages = {FitStage{8, 4}};
    return job;
  }

  std::unique_ptr<Result> RunOn(c10::DeviceType device, const Job& job, int world_size) {
    device_ = device;
    const int64_t before = device::StandInAllocations();
    auto result = RunSessions(job, world_size);
    for (const auto& end : result->ends) EXPECT_TRUE(end.ok()) << end.status();
    // The parameters, buffers, batches and activations of at least eight steps.
    const int64_t allocated = device::StandInAllocations() - before;
    EXPECT_TRUE(device == c10::kCPU ? allocated == 0 : allocated > 1000) << allocated;
    return result;
  }

  void ExpectTheLossesOfTheCpu(const Job& job, int world_size) {
    const auto here = RunOn(c10::kCPU, job, world_size);
    const auto there = RunOn(device::StandInDevice().type(), job, world_size);
    ASSERT_FALSE(here->coordinator.losses().empty());
    ExpectNear(there->coordinator.losses(), here->coordinator.losses());
    ExpectNear(there->coordinator.validations(), here->coordinator.validations());
  }

  static void ExpectNear(const std::map<int64_t, double>& found,
                         const std::map<int64_t, double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [step, loss] : expected) {
      EXPECT_NEAR(found.at(step), loss, 1e-5) << "step " << step;
    }
  }
};

TEST_F(DeviceSessionTest, TrainsAndValidatesAsOnTheCpu) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job = DeviceJob(strategy);
    ExpectTheLossesOfTheCpu(job, 2);
    job.numerics.clip_grad_norm.reset();  // for updates bucket by bucket
    job.model.recomputed_units.emplace();
    ExpectTheLossesOfTheCpu(job, 1);
  }
}

TEST_F(DeviceSessionTest, AFrozenLayerIsRefreshedInTheMiddle) {
  const TrainableRule freeze = {.freeze = true, .pattern = "transformer.h.0.*"};
  commands_ = {Numbered(1, RulesOf({freeze}), 3)};
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    ExpectTheLossesOfTheCpu(DeviceJob(strategy), 2);
  }
}

// Validations use the averages.
TEST_F(DeviceSessionTest, AveragesAreThoseOfTheCpu) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job = DeviceJob(strategy);
    job.evaluation.averages = AverageConfig{.decay = 0.8, .evaluate = true};
    job.stages = {FitStage{8, 2}, ValidateStage{}};
    ExpectTheLossesOfTheCpu(job, 2);
  }
}

TEST_F(DeviceSessionTest, ACheckpointGoesOnOnEitherDevice) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job = DeviceJob(strategy);
    const auto expected = RunOn(c10::kCPU, job, 2)->coordinator.losses();
    job.checkpoint = {folder_ / StrategyName(strategy), 4};
    device_ = device::StandInDevice().type();
    const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/4);
    ASSERT_FALSE(first->coordinator.checkpoints().empty());
    for (const c10::DeviceType device : {c10::kCPU, device::StandInDevice().type()}) {
      device_ = device;
      const auto second = RunSessions(job, 2, 2, first->coordinator.checkpoints());
      for (const auto& [step, loss] : second->coordinator.losses()) {
        EXPECT_NEAR(loss, expected.at(step), 1e-5) << "step " << step;
      }
      EXPECT_EQ(second->coordinator.newest_step(), 8);
    }
  }
}

// Documents of 2 to 6 tokens for a context of 8.
TEST_F(DeviceSessionTest, PackedDocumentsAreThoseOfTheCpu) {
  std::vector<int64_t> bounds = {0};
  std::string tokens, trained;
  for (int document = 0; document < 60; ++document) {
    const int length = 2 + document % 5;
    for (int i = 0; i < length; ++i) {
      tokens += {static_cast<char>((document * 7 + i * i) % 29), 0};
      trained += static_cast<char>(i > 0 && (i + document) % 3 > 0 ? 1 : i == length - 1);
    }
    bounds.push_back(bounds.back() + length);
  }
  const auto plan =
      safetensors::Plan({{"bounds", safetensors::DType::kI64, {61}},
                         {"tokens", safetensors::DType::kU16, {bounds.back()}},
                         {"trained", safetensors::DType::kU8, {bounds.back()}}},
                        {{"format", "muster-documents"}, {"version", "1"}, {"vocab_size", "29"}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string numbers(reinterpret_cast<const char*>(bounds.data()), 8 * bounds.size());
  ASSERT_TRUE(
      files::WriteAtomically(folder_ / "documents", plan->prefix + numbers + tokens + trained)
          .ok());
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job = DeviceJob(strategy);
    job.data.train = DocumentFiles{{folder_ / "documents"}};
    job.data.validate = job.data.train;
    job.model.loss = models::LossOptions{.ignore_index = -100};
    job.batch.uneven_inputs.divide_by = DivideBy::kSamples;
    ExpectTheLossesOfTheCpu(job, 2);
    job.model.recomputed_units.emplace();
    ExpectTheLossesOfTheCpu(job, 1);
  }
}

}  // namespace
}  // namespace muster::train
