// Generation by all ranks of a job together. The ranks are threads.
#include "worker/train/evaluate/generate.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "worker/device/stand_in/stand_in_device.h"
#include "worker/memory/counting_allocator.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/job/job.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/training/rank_steps.h"

namespace muster::train {
namespace {

using ::testing::Each;

using Completions = std::vector<std::vector<int64_t>>;

constexpr const char* kGpt2 =
    R"({"vocab_size": 29, "context": 20, "layers": 2, "heads": 2, "width": 16, "dropout": 0.1})";
constexpr const char* kLlama =
    R"({"vocab_size": 29, "context": 20, "layers": 2, "heads": 4, "kv_heads": 2, "width": 16,)"
    R"( "inner": 24})";

struct NamedStrategy {
  std::string name;
  StrategyConfig config;
};

std::vector<NamedStrategy> Strategies() {
  return {{"ddp", parallel::DdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024}},
          {"sharded_ddp",
           parallel::ShardedDdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024}},
          {"fsdp", parallel::FsdpOptions{}},
          {"fsdp that keeps units", parallel::FsdpOptions{.reshard_after_forward = false}}};
}

class GenerateTest : public testing::Test {
 protected:
  GenerateTest() {
    std::string tokens;
    for (int i = 0; i < 1200; ++i) {
      tokens.push_back(static_cast<char>((i * i) % 29));
      tokens.push_back(0);
    }
    EXPECT_TRUE(files::WriteAtomically(folder_.Path("train.bin"), tokens).ok());
  }

  Job JobOf(const std::string& kind, const StrategyConfig& strategy, int world_size) const {
    Job job;
    job.seed = 7;
    *job.spec.mutable_model() = models::SpecFromText(kind, kind == "gpt2" ? kGpt2 : kLlama);
    // RankSteps needs a file for each rank.
    job.data.train =
        TokenFiles{.paths = std::vector(world_size, folder_.Path("train.bin")), .per_rank = true};
    job.strategy = strategy;
    job.optimizer = OptimizerConfig{0.01, optim::AdamWOptions{}};
    job.batch = {.per_rank = 2, .accumulate = 2};
    job.numerics.clip_grad_norm = 0.5;
    job.stages = {FitStage{10, 0}};
    return job;
  }

  // Returns `count` prompts of 1 to 7 tokens. The temperature is low enough for tokens to depend on
  // the logits of initial parameters, which are small.
  static models::GenerationRequest Request(size_t count) {
    models::GenerationRequest request = {.max_tokens = 10, .sampling = {.temperature = 0.02}};
    for (size_t i = 0; i < count; ++i) {
      request.prompts.emplace_back();
      for (size_t j = 0; j <= i * 3 % 7; ++j) {
        request.prompts[i].push_back(static_cast<int64_t>(i * 5 + j * 11) % 29);
      }
    }
    return request;
  }

  static absl::StatusOr<Completions> GenerateOn(RankSteps& steps, comm::Communicator& control,
                                                comm::Communicator& data,
                                                const models::GenerationRequest& request) {
    EXPECT_TRUE(steps.training().strategy().AwaitParameters().ok());
    return Generate(request, /*step=*/0, steps.model(), steps.training().context(), data.device(),
                    control);
  }

  // Returns the result of Generate on each rank, with initial parameters.
  std::vector<absl::StatusOr<Completions>> Generated(const std::string& kind,
                                                     const StrategyConfig& strategy, int world_size,
                                                     const models::GenerationRequest& request,
                                                     c10::DeviceType device = c10::kCPU) {
    const Job job = JobOf(kind, strategy, world_size);
    std::vector<absl::StatusOr<Completions>> all(world_size, absl::UnknownError("did not run"));
    RunRanks(
        world_size,
        [&](int rank, comm::Communicator& control, comm::Communicator& data,
            comm::Communicator& parameters) {
          RankSteps steps(job, rank, control, data, parameters);
          all[rank] = GenerateOn(steps, control, data, request);
        },
        device);
    return all;
  }

  Completions OfOneRank(const std::string& kind, const models::GenerationRequest& request) {
    auto found = Generated(kind, Strategies()[0].config, 1, request);
    EXPECT_TRUE(found[0].ok()) << found[0].status();
    return *std::move(found[0]);
  }

  files::TempDir folder_;
};

TEST_F(GenerateTest, EveryRankGetsTheTokensOfOneRankWithEveryStrategyAndWorldSize) {
  for (const char* kind : {"gpt2", "llama"}) {
    // Fewer batches than ranks, and more batches than ranks.
    for (const size_t prompts : {3, 40, 70}) {
      const models::GenerationRequest request = Request(prompts);
      const Completions expected = OfOneRank(kind, request);
      ASSERT_EQ(expected.size(), prompts);
      for (const auto& [name, strategy] : Strategies()) {
        for (const int world_size : {1, 2, 3}) {
          SCOPED_TRACE(absl::StrCat(kind, ", ", prompts, " prompts, ", name, ", ", world_size));
          for (const auto& found : Generated(kind, strategy, world_size, request)) {
            ASSERT_TRUE(found.ok()) << found.status();
            EXPECT_EQ(*found, expected);
          }
        }
      }
    }
  }
}

TEST_F(GenerateTest, TrainingIsBitwiseWhatItIsWithoutGeneration) {
  // Returns the losses and norms of steps, with or without a generation after each step.
  const auto run = [&](const Job& job, bool generates) {
    std::vector<std::vector<double>> of_ranks(2);
    RunRanks(2, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                    comm::Communicator& parameters) {
      RankSteps steps(job, rank, control, data, parameters);
      std::set<Completions> different;
      for (int step = 0; step < 6; ++step) {
        const auto result = steps.Next();
        ASSERT_TRUE(result.ok()) << result.status();
        of_ranks[rank].push_back(result->loss_sum);
        of_ranks[rank].push_back(result->metrics.grad_norm());
        if (!generates) continue;
        const auto found = GenerateOn(steps, control, data, Request(20));
        ASSERT_TRUE(found.ok()) << found.status();
        different.insert(*found);
      }
      if (generates) EXPECT_EQ(different.size(), 6u);  // the model differs after each step
    });
    return of_ranks;
  };
  for (const char* kind : {"gpt2", "llama"}) {
    for (const auto& [name, strategy] : Strategies()) {
      SCOPED_TRACE(absl::StrCat(kind, ", ", name));
      Job job = JobOf(kind, strategy, 2);
      job.model.recomputed_units.emplace();
      EXPECT_EQ(run(job, true), run(job, false));
    }
  }
}

TEST_F(GenerateTest, ParametersInBfloat16Generate) {
  const parallel::FsdpOptions strategy = {.parameters_in_bfloat16 = true};
  const Completions expected = *Generated("llama", strategy, 1, Request(20))[0];
  for (const int world_size : {2, 3}) {
    for (const auto& found : Generated("llama", strategy, world_size, Request(20))) {
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, expected);
    }
  }
}

TEST_F(GenerateTest, RefusesOnEveryRankBeforeAnythingRuns) {
  models::GenerationRequest request = Request(2);
  request.max_tokens = 19;
  for (const auto& found : Generated("gpt2", parallel::FsdpOptions{}, 2, request)) {
    EXPECT_EQ(found.status(),
              absl::InvalidArgumentError(
                  "generate: prompts[1]: expected at most 20 tokens (the model's context), found 4 "
                  "and 19 new ones (max_tokens); shorten the prompt or lower max_tokens"));
  }
}

TEST_F(GenerateTest, LogitsThatAreNotFiniteAreTheSameErrorOnEveryRank) {
  const Job job = JobOf("gpt2", parallel::DdpOptions{}, 3);
  std::vector<absl::Status> found(3);
  RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                  comm::Communicator& parameters) {
    RankSteps steps(job, rank, control, data, parameters);
    {
      const at::NoGradGuard no_grad;
      for (const models::Parameter& parameter : steps.model().Parameters()) {
        // Only the longest prompt reaches this position.
        if (parameter.name == "transformer.wpe.weight") {
          parameter.tensor[12].fill_(std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
    models::GenerationRequest request = Request(40);
    for (auto& prompt : request.prompts) prompt = {1};
    request.prompts[18] = {1, 2, 3, 4};
    found[rank] = GenerateOn(steps, control, data, request).status();
  });
  EXPECT_THAT(found, Each(absl::FailedPreconditionError(
                         "generate: check the model's weights, and the precision it computes in: "
                         "prompts[18]: the logits of the token at position 13 are not finite")));
}

TEST_F(GenerateTest, NothingIsKeptAfterwards) {
  memory::InstallCountingAllocator();
  RunRanks(1, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                  comm::Communicator& parameters) {
    RankSteps steps(JobOf("llama", parallel::FsdpOptions{}, 1), rank, control, data, parameters);
    const auto in_use = [&] {
      EXPECT_TRUE(GenerateOn(steps, control, data, Request(40)).ok());
      return memory::MemoryInUse().total.bytes;
    };
    const uint64_t after_one = in_use();
    EXPECT_EQ(in_use(), after_one);
    EXPECT_EQ(memory::MemoryInUse().of(memory::Purpose::kActivations).bytes, 0u);
  });
}

TEST_F(GenerateTest, OnADeviceTokensAreThoseOfTheCpuAndTheHostWaitsForLogitsOnly) {
  for (const char* kind : {"gpt2", "llama"}) {
    const models::GenerationRequest request = Request(20);
    const Completions expected = OfOneRank(kind, request);
    for (const auto& [name, strategy] : Strategies()) {
      SCOPED_TRACE(absl::StrCat(kind, ", ", name));
      const int64_t before = device::StandInAllocations();
      const auto all = Generated(kind, strategy, 2, request, device::StandInDevice().type());
      EXPECT_GT(device::StandInAllocations() - before, 1000);
      for (const auto& found : all) {
        ASSERT_TRUE(found.ok()) << found.status();
        EXPECT_EQ(*found, expected);
      }
    }
    RunRanks(
        1,
        [&](int rank, comm::Communicator& control, comm::Communicator& data,
            comm::Communicator& parameters) {
          RankSteps steps(JobOf(kind, parallel::DdpOptions{}, 1), rank, control, data, parameters);
          // The first call moves constants to the device.
          EXPECT_EQ(*GenerateOn(steps, control, data, request), expected);
          const device::NoWaiting no_waiting;
          EXPECT_EQ(*GenerateOn(steps, control, data, request), expected);
        },
        device::StandInDevice().type());
  }
}

}  // namespace
}  // namespace muster::train
