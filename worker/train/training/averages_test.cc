// Averages of a small set of parameters with each strategy, compared with the formula.
#include "worker/train/training/averages.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/item.h>
#include <ATen/ops/max.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/checkpoint/state.h"
#include "worker/parallel/test_model.h"
#include "worker/parallel/test_net.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

const StrategyConfig kStrategies[] = {
    parallel::DdpOptions{.bucket_bytes = 300, .first_bucket_bytes = 100},
    parallel::ShardedDdpOptions{.bucket_bytes = 300, .first_bucket_bytes = 100},
    parallel::FsdpOptions{}};

absl::StatusOr<std::unique_ptr<parallel::Strategy>> Make(
    const StrategyConfig& config, const parallel::TestNet& net,
    const parallel::Communicators& communicators, parallel::KeptMemory kept = {}) {
  const auto parameters = net.Parameters();
  if (const auto* ddp = std::get_if<parallel::DdpOptions>(&config)) {
    return parallel::CreateDdp(parameters, {}, communicators.gradients, *ddp);
  }
  if (const auto* sharded = std::get_if<parallel::ShardedDdpOptions>(&config)) {
    return parallel::CreateShardedDdp(parameters, {}, &net, communicators.gradients, *sharded,
                                      std::move(kept));
  }
  return parallel::CreateFsdp(parameters, {}, &net, communicators,
                              std::get<parallel::FsdpOptions>(config), std::move(kept));
}

std::vector<at::ScalarType> TypesOf(const parallel::TestNet& net) {
  std::vector<at::ScalarType> types;
  for (const auto& parameter : net.Parameters()) types.push_back(parameter.tensor.scalar_type());
  return types;
}

Mask TrainedOf(const parallel::TestNet& net) {
  Mask trained;
  for (const auto& parameter : net.Parameters())
    trained.push_back(parameter.tensor.requires_grad());
  return trained;
}

// Adds `by` to the values that each rank updates, as an optimizer would.
void Change(parallel::Strategy& strategy, double by) {
  const c10::NoGradGuard no_grad;
  for (const parallel::Piece& piece : strategy.pieces()) piece.tensor.detach().add_(by);
}

// The averages of all ranks, combined and given to every rank.
class Together {
 public:
  void Add(const checkpoint::State& state) {
    const std::lock_guard lock(mutex_);
    for (const auto& piece : state.held) {
      const checkpoint::StateItem& item = state.items[piece.item];
      at::Tensor& whole = averages_[item.parameter];
      if (!whole.defined()) whole = at::zeros(item.shape, item.type);
      whole.view({-1}).narrow(0, piece.begin, piece.tensor.numel()).copy_(piece.tensor.view({-1}));
    }
    items_ = state.items.size();
  }
  const at::Tensor& of(const std::string& parameter) const { return averages_.at(parameter); }
  size_t items() const { return items_; }

 private:
  std::mutex mutex_;
  std::map<std::string, at::Tensor> averages_;
  size_t items_ = 0;
};

checkpoint::State StateOf(const Averages& averages, int world_size) {
  checkpoint::StateBuilder builder(world_size);
  averages.AddTo(&builder);
  return builder.Build();
}

class AveragesTest : public testing::TestWithParam<int> {
 protected:
  static const StrategyConfig& Config() { return kStrategies[GetParam()]; }
};
std::string NameOfStrategy(const testing::TestParamInfo<int>& info) {
  constexpr const char* kNames[] = {"Ddp", "ShardedDdp", "Fsdp"};
  return kNames[info.param];
}
INSTANTIATE_TEST_SUITE_P(All, AveragesTest, testing::Values(0, 1, 2), NameOfStrategy);

TEST_P(AveragesTest, TheFirstUpdateCopiesAndLaterOnesMoveTowardsTheParameters) {
  Together together;
  RunRanks(2,
           [&](int, comm::Communicator&, comm::Communicator& data, comm::Communicator& parameters) {
             parallel::TestNet net;
             const Mask trained = TrainedOf(net);
             const std::vector<at::ScalarType> types = TypesOf(net);
             auto strategy = *Make(Config(), net, {&data, &parameters});
             Averages averages({.decay = 0.75, .every = 2}, net.Parameters(), types, &data);
             const Averages::Plan plan{strategy.get(), &trained};
             averages.Update(1, plan);
             EXPECT_FALSE(averages.begun()) << "only every second step";
             EXPECT_TRUE(StateOf(averages, 2).items.empty());
             for (int64_t step = 2; step <= 5; ++step) {
               Change(*strategy, 1);  // in total +1, +2, +3, +4
               averages.Update(step, plan);
             }
             together.Add(StateOf(averages, 2));
           });
  // The first update copies x + 1. The next gives 0.75 (x + 1) + 0.25 (x + 3).
  const parallel::TestNet before;
  EXPECT_EQ(together.items(), before.Parameters().size());
  for (const auto& [name, tensor] : before.Parameters()) {
    if (tensor.numel() == 0) continue;
    const at::Tensor expected =
        tensor.requires_grad() ? (tensor.detach() + 1.5).to(at::kDouble) : tensor.to(at::kDouble);
    const at::Tensor found = together.of(name).to(at::kDouble);
    // The bound allows for rounding errors of float32 for numbers up to 64.
    EXPECT_LT((found - expected).abs().max().item<double>(), 1e-5) << name;
  }
}

TEST_P(AveragesTest, ANewPlanKeepsThemBitByBit) {
  Together before, after;
  RunRanks(3,
           [&](int, comm::Communicator&, comm::Communicator& data, comm::Communicator& parameters) {
             parallel::TestNet net;
             const std::vector<at::ScalarType> types = TypesOf(net);
             Mask trained = TrainedOf(net);
             auto strategy = *Make(Config(), net, {&data, &parameters});
             Averages averages({.decay = 0.9}, net.Parameters(), types, &data);
             averages.Update(1, {strategy.get(), &trained});
             Change(*strategy, 0.5);
             averages.Update(2, {strategy.get(), &trained});
             before.Add(StateOf(averages, 3));
             averages.LeavePlan();
             parallel::KeptMemory kept = strategy->ReleaseModel();
             strategy.reset();
             size_t count = 0;
             for (const auto& [name, tensor] : net.Parameters()) {
               if (tensor.requires_grad() && ++count % 2 == 0)
                 at::Tensor(tensor).requires_grad_(false);
             }
             trained = TrainedOf(net);
             strategy = *Make(Config(), net, {&data, &parameters}, std::move(kept));
             ASSERT_TRUE(averages.EnterPlan({strategy.get(), &trained}, 2).ok());
             after.Add(StateOf(averages, 3));
           });
  for (const auto& [name, tensor] : parallel::TestNet().Parameters()) {
    if (tensor.numel() == 0) continue;
    EXPECT_TRUE(parallel::SameBits(before.of(name), after.of(name))) << name;
  }
}

TEST_P(AveragesTest, ExchangedTwiceEverythingIsAsItWas) {
  if (GetParam() == 2) return;  // fsdp does this in the strategy's pass: evaluation_scope_test
  RunRanks(
      3, [&](int, comm::Communicator&, comm::Communicator& data, comm::Communicator& parameters) {
        parallel::TestNet net;
        const Mask trained = TrainedOf(net);
        auto strategy = *Make(Config(), net, {&data, &parameters});
        Averages averages({.decay = 0.75}, net.Parameters(), TypesOf(net), &data);
        averages.Update(1, {strategy.get(), &trained});
        Change(*strategy, 1);
        strategy->FinishUpdate();
        ASSERT_TRUE(strategy->AwaitParameters().ok());
        std::vector<at::Tensor> values;
        std::vector<const void*> memory;
        for (const auto& [name, tensor] : net.Parameters()) {
          values.push_back(tensor.detach().clone());
          memory.push_back(tensor.const_data_ptr());
        }
        const parallel::TestNet first;  // the values of the averages
        for (const bool back : {false, true}) {
          averages.Exchange();
          ASSERT_TRUE(averages.Spread(1).ok());
          for (size_t i = 0; i < values.size(); ++i) {
            const auto& [name, tensor] = net.Parameters()[i];
            const at::Tensor expected = back ? values[i] : first.Parameters()[i].tensor.detach();
            EXPECT_TRUE(parallel::SameBits(tensor.detach(), expected)) << name << back;
            if (back) {
              EXPECT_EQ(tensor.const_data_ptr(), memory[i]) << name;
            }
          }
        }
      });
}

}  // namespace
}  // namespace muster::train
