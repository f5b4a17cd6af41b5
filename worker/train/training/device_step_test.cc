// Steps of a model on a device other than the CPU. The host gets the results later, and the results
// are the same as on the CPU.
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/device/host_values.h"
#include "worker/device/stand_in/stand_in_device.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/training/join_fixture.h"
#include "worker/train/training/rank_steps.h"

namespace muster::train {
namespace {

class DeviceStepTest : public JoinFixture {
 protected:
  // SGD, because AdamW turns rounding errors of gradients into whole steps.
  Job DeviceJob(int64_t rows) {
    Job job = JobOn({rows, rows}, 8);
    job.optimizer->kind = optim::SgdOptions{.momentum = 0.9};
    return job;
  }

  // Returns a job with a value that overflows in one step. `loss`: the loss and all gradients
  // overflow; otherwise only the variance in BatchNorm's buffers.
  Job JobThatOverflows(bool loss) {
    bad_row_ = {1, 5};
    bad_value_ = loss ? 3e38f : 1e20f;
    Job job = DeviceJob(40);
    if (loss) {
      *job.spec.mutable_model() =
          models::SpecFromText("mlp", R"({"inputs": 16, "hidden": [64], "classes": 3})");
    }
    return job;
  }

  // Returns the results of each rank's first steps, up to the first error.
  std::vector<std::vector<absl::StatusOr<StepResult>>> Learned(const Job& job, int steps,
                                                               c10::DeviceType device) {
    std::vector<std::vector<absl::StatusOr<StepResult>>> learned(2);
    RunRanks(
        2,
        [&](int rank, comm::Communicator& control, comm::Communicator& data,
            comm::Communicator& parameters) {
          RankSteps of_rank(job, rank, control, data, parameters);
          for (int step = 0; step < steps; ++step) {
            learned[rank].push_back(of_rank.Next());
            if (!learned[rank].back().ok()) return;
          }
        },
        device);
    return learned;
  }

  // Losses and norms come from convolutions and sums, whose order on the device is different. The
  // bound of 1e-5 is 80 rounding errors of float32 at this size.
  void ExpectWhatTheCpuTells(const Job& job, int steps) {
    const auto here = Learned(job, steps, c10::kCPU);
    const auto there = Learned(job, steps, device::StandInDevice().type());
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(there[rank].size(), here[rank].size());
      for (size_t i = 0; i < here[rank].size(); ++i) {
        SCOPED_TRACE(absl::StrCat("rank ", rank, ", step ", i + 1));
        const auto &expected = here[rank][i], &found = there[rank][i];
        ASSERT_EQ(found.status(), expected.status());
        if (!expected.ok()) continue;
        outcomes_.push_back(expected->outcome);
        EXPECT_EQ(found->outcome, expected->outcome);
        EXPECT_EQ(found->unused, expected->unused);
        unused_.insert(expected->unused.size());
        EXPECT_EQ(found->not_finite, expected->not_finite);
        EXPECT_EQ(found->loss_weight, expected->loss_weight);
        EXPECT_EQ(found->metrics.learning_rate(), expected->metrics.learning_rate());
        EXPECT_EQ(found->metrics.loss_scale(), expected->metrics.loss_scale());
        EXPECT_NEAR(found->metrics.grad_norm(), expected->metrics.grad_norm(), 1e-5);
        if (expected->not_finite.empty()) {
          EXPECT_NEAR(found->loss_sum, expected->loss_sum, 1e-5);
        }
      }
    }
  }

  // Makes steps and reads each result one step later.
  void ExpectThatTheHostDoesNotWait(const Job& job) {
    RunRanks(
        2,
        [&](int rank, comm::Communicator& control, comm::Communicator& data,
            comm::Communicator& parameters) {
          RankSteps steps(job, rank, control, data, parameters);
          // Waits until all ranks are built.
          const at::Tensor ready = device::HostTensor(std::vector<double>{1});
          ASSERT_TRUE(control.AllReduceSum(ready, {"ready", 0})->Wait().ok());
          const device::NoWaiting no_waiting;
          std::deque<PendingStep> late;
          for (int step = 0; step < 20; ++step) {
            auto begun = steps.Begin();
            ASSERT_TRUE(begun.ok()) << begun.status();
            EXPECT_TRUE(begun->late);
            late.push_back(*std::move(begun));
            if (late.size() == 1) continue;
            const auto result = late.front().await();
            ASSERT_TRUE(result.ok()) << result.status();
            EXPECT_TRUE(std::isfinite(result->loss_sum));
            late.pop_front();
          }
        },
        device::StandInDevice().type());
  }

  // Returns a job with a TorchScript model. `body`: the forward, with "weight" [3, 16].
  Job JobWith(torch::jit::Module module, const std::string& body, int64_t rows = 40) {
    module.register_parameter("weight", at::linspace(-1, 1, 48).view({3, 16}).requires_grad_(true),
                              false);
    module.define(body);
    module.save(folder_.Path("model.pt"));
    Job job = DeviceJob(rows);
    *job.spec.mutable_model() = models::SpecFromText(
        "torchscript", absl::StrCat(R"({"path": ")", folder_.Path("model.pt"),
                                    R"(", "inputs": [1, 4, 4], "classes": 3})"));
    return job;
  }

  std::vector<StepOutcome> outcomes_;
  // The numbers of unused parameters that occurred in some step on some rank.
  std::set<size_t> unused_;
};

INSTANTIATE_TEST_SUITE_P(Strategies, DeviceStepTest, testing::Values(0, 1, 2), NameOfStrategy);

TEST_P(DeviceStepTest, TheHostWaitsForNothingThatTheDeviceComputes) {
  for (const bool clips : {true, false}) {
    Job job = DeviceJob(40);
    if (clips) job.numerics.clip_grad_norm = 0.5;
    ExpectThatTheHostDoesNotWait(job);
  }
}

TEST_P(DeviceStepTest, StepsThatAreNotFiniteAreLeftOutAsOnTheCpu) {
  for (const bool loss : {true, false}) {
    for (const DivideBy divide_by : {DivideBy::kInitial, DivideBy::kSamples}) {
      Job job = JobThatOverflows(loss);
      job.numerics.on_nan = OnNan::kSkipStep;
      job.batch.uneven_inputs.divide_by = divide_by;
      job.numerics.clip_grad_norm = 0.5;
      ExpectWhatTheCpuTells(job, 8);
    }
  }
  // Each case skips one step on two ranks.
  EXPECT_EQ(std::count(outcomes_.begin(), outcomes_.end(), StepOutcome::kSkipped), 8);
}

TEST_P(DeviceStepTest, AStepThatEndsTheJobIsNamedAsOnTheCpu) {
  for (const bool loss : {true, false}) {
    for (const bool clips : {true, false}) {
      Job job = JobThatOverflows(loss);
      if (clips) job.numerics.clip_grad_norm = 0.5;
      ExpectWhatTheCpuTells(job, 5);
    }
  }
  // One step on two ranks is refused, with and without clipping. The cases with buffers are errors.
  EXPECT_EQ(std::count(outcomes_.begin(), outcomes_.end(), StepOutcome::kRefused), 4);
}

TEST_P(DeviceStepTest, APluginTrainsAsOnTheCpu) {
  row_ = {3};
  classes_ = 2;
  Job job = DeviceJob(40);
  *job.spec.mutable_model() = models::SpecFromText(
      "plugin", R"({"path": "worker/models/plugin/plugin_faults.so", "name": "faulty", )"
                R"("options": {"fault": "none"}})");
  ExpectWhatTheCpuTells(job, 5);
}

TEST_P(DeviceStepTest, ATorchscriptModelTrainsAsOnTheCpu) {
  torch::jit::Module module{c10::QualifiedName("__torch__.M")};
  module.register_buffer("mean", at::zeros({16}));
  module.register_attribute("training", c10::BoolType::get(), true);
  const Job job = JobWith(module, R"(
    def forward(self, x: Tensor):
      rows = x.flatten(1)
      if self.training:
        self.mean.mul_(0.9).add_(rows.mean(0), alpha=0.1)
      return torch.linear(rows - self.mean.clone(), self.weight)
  )");
  ExpectWhatTheCpuTells(job, 5);
}

TEST_P(DeviceStepTest, WhatNoRankUsedIsLeftOutAsOnTheCpuAndTheHostDoesNotWait) {
  torch::jit::Module module{c10::QualifiedName("__torch__.M")};
  module.register_parameter("never", at::linspace(-1, 1, 40).requires_grad_(true), false);
  module.register_parameter("sometimes", at::linspace(1, 2, 16).requires_grad_(true), false);
  // The sixth step has one micro-batch with two rows.
  Job job = JobWith(module, R"(
    def forward(self, x: Tensor):
      rows = x.flatten(1)
      if x.size(0) > 2:
        rows = rows * self.sometimes
      return torch.linear(rows, self.weight)
  )", 42);
  for (const bool clips : {false, true}) {
    for (const optim::OptimizerOptions& kind :
         {optim::OptimizerOptions(optim::SgdOptions{.momentum = 0.9, .weight_decay = 0.1}),
          optim::OptimizerOptions(optim::AdamWOptions{.eps = 1e-3, .weight_decay = 0.1})}) {
      job.optimizer->kind = kind;
      if (clips) job.numerics.clip_grad_norm = 0.5;
      ExpectWhatTheCpuTells(job, 6);
      ExpectThatTheHostDoesNotWait(job);
    }
  }
  // "never" is unused in all steps, "sometimes" in some steps.
  EXPECT_GT(unused_.size(), 1u);
}

}  // namespace
}  // namespace muster::train
