// Plugin models with fsdp. While the model is built, no rank has memory for the whole model. The
// slices equal those of the whole model that ddp builds.
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "worker/memory/counting_allocator.h"
#include "worker/models/deferred_values.h"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;
constexpr int64_t kLayers = 18, kWidth = 128;
constexpr uint64_t kLayer = 4 * kWidth * kWidth;
constexpr uint64_t kWhole = (kLayers - 2) * kLayer + 4 * 5 * kWidth;
constexpr char kFaults[] = "worker/models/plugin/plugin_faults.so";

struct Built {
  uint64_t peak = 0;  // per rank
  std::vector<std::string> refusals;
};

class DeferredBuildTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::InstallCountingAllocator(); }

  static Job PluginJob(const std::string& how) {
    Job job;
    job.seed = 3;
    *job.spec.mutable_model() = models::SpecFromText(
        "plugin", R"({"path": ")" + std::string(kFaults) + R"(", "name": "faulty", "options": )" +
                      R"({"fault": ")" + how + R"(", "layers": ")" + std::to_string(kLayers) +
                      R"(", "width": ")" + std::to_string(kWidth) + R"("}})");
    return job;
  }
  static Job ScriptJob(const std::string& path) {
    Job job;
    *job.spec.mutable_model() = models::SpecFromText(
        "torchscript", R"({"path": ")" + path + R"(", "inputs": [3], "classes": 2})");
    return job;
  }

  // Builds the job's model and shards on each rank. Compares the shards with the whole model.
  static Built Build(Job job, parallel::FsdpOptions options = {.units = {"*"}}) {
    job.strategy = options;
    std::vector<at::Tensor> whole;
    {
      const auto model = *BuildModel(job);
      for (const auto& parameter : model->Parameters()) whole.push_back(parameter.tensor.detach());
    }
    Built built;
    std::mutex mutex;
    memory::ResetPeaks();
    const uint64_t before = memory::MemoryInUse().total.bytes;
    RunRanks(kRanks, [&](int, comm::Communicator&, comm::Communicator& gradients,
                         comm::Communicator& parameters) {
      models::DeferredValues deferred;
      const auto model = BuildModel(job, &deferred);
      ASSERT_TRUE(model.ok()) << model.status();
      const auto strategy = BuildStrategy(job, **model, {&gradients, &parameters}, nullptr,
                                          [&](const at::Tensor& tensor, int64_t b, int64_t e) {
                                            return deferred.Range(tensor, b, e);
                                          });
      ASSERT_TRUE(strategy.ok()) << strategy.status();
      const std::lock_guard lock(mutex);
      built.refusals.push_back(deferred.refusal());
      for (const parallel::Piece& piece : (*strategy)->store().shards()->held) {
        EXPECT_TRUE(piece.tensor.detach().equal(whole[piece.parameter].flatten().slice(
            0, piece.begin, piece.begin + piece.tensor.numel())))
            << (*model)->Parameters()[piece.parameter].name;
      }
    });
    built.peak = (memory::MemoryInUse().total.peak_bytes - before) / kRanks;
    return built;
  }

  // The bound per rank: the slice; the largest parameter twice; the states of generators with the
  // activations of two rows. The largest parameter counts for its values and for the memory of its
  // gathered unit, which is allocated and freed once.
  static constexpr uint64_t kBound = kWhole / kRanks + 2 * kLayer + 300000;
  static_assert(kBound < kWhole - 2 * kLayer);
};

TEST_F(DeferredBuildTest, APluginsModelIsNeverWholeOnARank) {
  const Built built = Build(PluginJob("values"));
  EXPECT_THAT(built.refusals, ::testing::Each(""));
  EXPECT_LT(built.peak, kBound);
}

TEST_F(DeferredBuildTest, NorIsOneThatDrawsFromTheProcessesGenerator) {
  const Built built = Build(PluginJob("draws"));
  EXPECT_THAT(built.refusals, ::testing::Each(""));
  EXPECT_LT(built.peak, kBound);
}

TEST_F(DeferredBuildTest, APluginThatReadsAValueIsMadeWholeAndSaysWhy) {
  const Built built = Build(PluginJob("reads"));
  EXPECT_THAT(built.refusals,
              ::testing::Each(HasSubstr("model 'faulty': aten::_local_scalar_dense: asks for a "
                                        "value of a tensor that has none yet")));
  EXPECT_GT(built.peak, kWhole / 2) << "the measure of this test";
}

std::string ScriptFile(bool sequence) {
  const std::string path = ::testing::TempDir() + (sequence ? "/sequence.pt" : "/script.pt");
  torch::jit::Module top{c10::QualifiedName(
      sequence ? "__torch__.torch.nn.modules.container.Sequential" : "__torch__.M")};
  std::string calls = "x";
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    torch::jit::Module layer{c10::QualifiedName("__torch__.L" + std::to_string(i))};
    const std::vector<int64_t> shape = {i + 1 < kLayers ? kWidth : 2, i > 0 ? kWidth : 3};
    layer.register_parameter(
        "weight", at::randn(shape, models::MakeGenerator(i)).mul_(0.1).requires_grad_(true), false);
    layer.define(
        "def forward(self, x: Tensor) -> Tensor:\n  return torch.linear(x, self.weight)\n");
    top.register_module(name, layer);
    calls = "self." + name + ".forward(" + calls + ")";
  }
  top.define("def forward(self, x: Tensor) -> Tensor:\n  return " + calls + "\n");
  top.save(path);
  return path;
}

TEST_F(DeferredBuildTest, ATorchscriptModelIsNeverWholeOnARank) {
  for (const bool sequence : {true, false}) {
    const Job job = ScriptJob(ScriptFile(sequence));
    const Built built =
        Build(job, sequence ? parallel::FsdpOptions{.units = {"*"}} : parallel::FsdpOptions());
    EXPECT_THAT(built.refusals, ::testing::Each(""));
    // A module other than a sequence is a single unit. Its memory is allocated once as a whole and
    // freed unused.
    EXPECT_LT(built.peak, kBound + (sequence ? 0 : kWhole));
  }
}

}  // namespace
}  // namespace muster::train
