// Steps of ranks with different amounts of input: what each rank holds after them, and what they
// wait for.
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/state.h"
#include "worker/train/join_fixture.h"
#include "worker/train/rank_data.h"
#include "worker/train/rank_threads.h"
#include "worker/train/setup.h"
#include "worker/train/trained_parameters.h"
#include "worker/train/training.h"

namespace muster::train {
namespace {

using testing::ElementsAre;

using JoinStepTest = JoinFixture;
INSTANTIATE_TEST_SUITE_P(Strategies, JoinStepTest, testing::Values(0, 1, 2, 3, 4), NameOfStrategy);

// What a rank holds of the state: by item, its bytes.
std::map<std::string, std::string> BytesOf(const checkpoint::State& state) {
  std::map<std::string, std::string> bytes;
  for (const auto& piece : state.held) {
    bytes[absl::StrCat(Name(state.items[piece.item]), "@", piece.begin)] =
        std::string(static_cast<const char*>(piece.tensor.const_data_ptr()), piece.tensor.nbytes());
  }
  return bytes;
}

// One rank's parts of a session, step by step.
class Steps {
 public:
  Steps(const Job& job, int rank, comm::Communicator& control, comm::Communicator& data,
        comm::Communicator& parameters)
      : job_(job), rank_(rank), model_(*BuildModel(job)) {
    data_ = *OpenRankData("data.train", *job.train, model_->Input(), data::Emptiness::kAllowed,
                          control);
    finite_.emplace(*model_);
    trained_ = *TrainedParameters::Create(model_->Parameters(), {});
    for (size_t i = 0; i < data_.own_sizes.size(); ++i) samplers_.push_back(SamplerOf(i));
    auto training = Training::Create({.job = &job_,
                                      .rank = rank,
                                      .model = model_.get(),
                                      .trained = trained_.get(),
                                      .communicators = {&data, &parameters},
                                      .control = &control,
                                      .dataset = data_.dataset.get(),
                                      .sampler = &samplers_[rank],
                                      .finite = &*finite_},
                                     nullptr);
    EXPECT_TRUE(training.ok()) << training.status();
    training_ = *std::move(training);
  }

  absl::StatusOr<StepResult> Next() {
    std::vector<RankInput> inputs;
    for (size_t rank = 0; rank < samplers_.size(); ++rank) {
      const auto share = samplers_[rank].ShareOf(position_, rank);
      inputs.push_back({share.micro_batches, share.samples, share.micro_batches == 0});
    }
    ++step_;
    auto result = training_->stepper().Run(
        {step_, position_, PlanInputs(inputs, job_.uneven_inputs, 2 * samplers_.size()), 0.01});
    position_ = samplers_[rank_].After(position_);
    return result;
  }
  bool HasInput() const { return samplers_[rank_].ShareOf(position_, rank_).micro_batches > 0; }
  Training& training() { return *training_; }

 private:
  data::Sampler SamplerOf(int64_t rank) const {
    return *data::Sampler::Create({.size = data_.own_sizes[rank],
                                   .seed = job_.seed,
                                   .world_size = static_cast<int64_t>(data_.own_sizes.size()),
                                   .per_rank = job_.batch.per_rank,
                                   .accumulate = job_.batch.accumulate,
                                   .last = job_.batch.last,
                                   .own = data_.Own(rank)});
  }

  const Job job_;
  const int rank_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<TrainedParameters> trained_;
  RankData data_;
  std::optional<FiniteCheck> finite_;
  std::vector<data::Sampler> samplers_;
  std::unique_ptr<Training> training_;
  data::Position position_;
  int64_t step_ = 0;
};

TEST_P(JoinStepTest, AllRanksHoldTheSameAfterEachStepTheOptimizersStateToo) {
  const std::vector<int64_t> sizes = {29, 0, 7};  // 4 steps, none, 1 (the second window is short)
  for (const DivideBy divide_by : {DivideBy::kInitial, DivideBy::kActive, DivideBy::kSamples}) {
    Job job = JobOn(sizes, 8);
    job.uneven_inputs.divide_by = divide_by;
    std::vector<std::vector<std::map<std::string, std::string>>> held(3);
    RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                    comm::Communicator& parameters) {
      Steps steps(job, rank, control, data, parameters);
      for (int step = 0; step < 8; ++step) {
        const auto result = steps.Next();
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->outcome, StepOutcome::kApplied);
        ASSERT_TRUE(steps.training().strategy().AwaitParameters().ok());
        held[rank].push_back(BytesOf(steps.training().State()));
      }
    });
    // Sharded state is on one rank each; what several hold must be the same bits.
    for (int step = 0; step < 8; ++step) {
      size_t common = 0;
      for (int rank = 1; rank < 3; ++rank) {
        for (const auto& [name, bytes] : held[rank][step]) {
          const auto found = held[0][step].find(name);
          if (found == held[0][step].end()) continue;
          ++common;
          EXPECT_TRUE(found->second == bytes)
              << name << " differs on rank " << rank << " after step " << step + 1;
        }
      }
      // Parameters, moments, steps and buffers; where they are sharded, buffers at least.
      EXPECT_GT(common, GetParam() == 0 ? 60u : 15u);
      EXPECT_NE(held[0][step], held[0][(step + 1) % 8]);
    }
  }
}

// Asks for a tensor's value, on a device, wait until it has computed it.
int CountOfValuesAskedFor(const std::function<void()>& body) {
  static thread_local int count;
  count = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function)
                                     -> std::unique_ptr<at::ObserverContext> {
        for (const char* name : {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}) {
          count += std::strcmp(function.name(), name) == 0;
        }
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  {
    const at::RecordFunctionGuard guard(true);
    body();
  }
  at::removeCallback(handle);
  return count;
}

TEST_P(JoinStepTest, AStepOfAJoinedRankNeverWaitsForTheDevice) {
  Job job = JobOn({29, 0, 7}, 8);
  job.optimizer->kind =
      optim::SgdOptions{.momentum = 0.9};  // AdamW on the CPU reads its counts of steps
  std::vector<std::vector<int>> values(3);
  RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                  comm::Communicator& parameters) {
    Steps steps(job, rank, control, data, parameters);
    for (int step = 0; step < 4; ++step) {
      values[rank].push_back(CountOfValuesAskedFor([&] { EXPECT_TRUE(steps.Next().ok()); }));
    }
  });
  // One for each loss of an own micro-batch, which is asked for behind its backward.
  EXPECT_THAT(values[0], ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(values[1], ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(values[2], ElementsAre(2, 0, 0, 0));
}

}  // namespace
}  // namespace muster::train
