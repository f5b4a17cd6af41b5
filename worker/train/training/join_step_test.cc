// Steps of ranks with different amounts of input: the state of each rank after the steps, and what
// the ranks wait for.
#include <ATen/core/Tensor.h>
#include <ATen/ops/item.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/state.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/training/join_fixture.h"
#include "worker/train/training/rank_steps.h"

namespace muster::train {
namespace {

using testing::ElementsAre;

using JoinStepTest = JoinFixture;
INSTANTIATE_TEST_SUITE_P(Strategies, JoinStepTest, testing::Values(0, 1, 2, 3, 4), NameOfStrategy);

// Returns the state that this rank holds: the bytes of each item.
std::map<std::string, std::string> BytesOf(const checkpoint::State& state) {
  std::map<std::string, std::string> bytes;
  for (const auto& piece : state.held) {
    bytes[absl::StrCat(Name(state.items[piece.item]), "@", piece.begin)] =
        std::string(static_cast<const char*>(piece.tensor.const_data_ptr()), piece.tensor.nbytes());
  }
  return bytes;
}

TEST_P(JoinStepTest, AllRanksHoldTheSameAfterEachStepTheOptimizersStateToo) {
  const std::vector<int64_t> sizes = {29, 0, 7};  // 4, none, and 1 step with a short window
  for (const DivideBy divide_by : {DivideBy::kInitial, DivideBy::kActive, DivideBy::kSamples}) {
    Job job = JobOn(sizes, 8);
    job.batch.uneven_inputs.divide_by = divide_by;
    std::vector<std::vector<std::map<std::string, std::string>>> held(3);
    RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                    comm::Communicator& parameters) {
      RankSteps steps(job, rank, control, data, parameters);
      for (int step = 0; step < 8; ++step) {
        const auto result = steps.Next();
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->outcome, StepOutcome::kApplied);
        ASSERT_TRUE(steps.training().strategy().AwaitParameters().ok());
        held[rank].push_back(BytesOf(steps.training().State()));
      }
    });
    // Sharded state is on one rank each. State that several ranks hold must be bitwise equal.
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
      // Parameters, moments, step counts and buffers; with shards, at least buffers are common.
      EXPECT_GT(common, GetParam() == 0 ? 60u : 15u);
      EXPECT_NE(held[0][step], held[0][(step + 1) % 8]);
    }
  }
}

// Strategies: ddp, in which a rank without input runs no model, and fsdp, in which such a rank runs
// the model.
using ReadAheadStepTest = JoinFixture;
INSTANTIATE_TEST_SUITE_P(Strategies, ReadAheadStepTest, testing::Values(0, 2), NameOfStrategy);

// Even the first batch of an epoch, and of a rank after steps without input, is read ahead.
TEST_P(ReadAheadStepTest, EveryBatchButTheFirstIsReadAhead) {
  for (const data::Order order :
       {data::Order::kShuffled, data::Order::kShuffledV2, data::Order::kSequential}) {
    for (const data::Last last : {data::Last::kDrop, data::Last::kPad, data::Last::kUneven}) {
      const bool uneven = last == data::Last::kUneven;
      // Steps of the ranks in an epoch. Uneven: 4, none, and 1. Otherwise 2 steps on every rank, or
      // 3 with `pad`.
      Job job =
          JobOn(uneven ? std::vector<int64_t>{29, 0, 7} : std::vector<int64_t>{29, 18, 40}, 9);
      job.batch.order = order;
      job.batch.last = last;
      std::vector<int> own_reads(3);
      RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                      comm::Communicator& parameters) {
        RankSteps steps(job, rank, control, data, parameters);
        for (int step = 0; step < 9; ++step) ASSERT_TRUE(steps.Next().ok());
        own_reads[rank] = steps.own_reads();
      });
      EXPECT_THAT(own_reads, ElementsAre(1, uneven ? 0 : 1, 1))
          << static_cast<int>(order) << static_cast<int>(last);
    }
  }
}

// Returns how often `body` reads the value of a tensor. On a device, each such read waits until the
// device has computed the value.
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

TEST_P(JoinStepTest, AStepNeverAsksForTheValueOfATensor) {
  Job job = JobOn({29, 0, 7}, 8);
  job.optimizer->kind =
      optim::SgdOptions{.momentum = 0.9};  // on the CPU, AdamW reads its step counts
  std::vector<std::vector<int>> values(3);
  RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                  comm::Communicator& parameters) {
    RankSteps steps(job, rank, control, data, parameters);
    for (int step = 0; step < 4; ++step) {
      values[rank].push_back(CountOfValuesAskedFor([&] { EXPECT_TRUE(steps.Next().ok()); }));
    }
  });
  EXPECT_EQ(CountOfValuesAskedFor([] { EXPECT_EQ(at::ones({}).item<float>(), 1); }), 1);
  for (const auto& of_rank : values) EXPECT_THAT(of_rank, ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace muster::train
