// Tests of sharded_ddp beyond the conformance tests of strategies.
#include "worker/models/unit.h"
#include "worker/parallel/sharded_ddp/sharded_ddp.h"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/comm/local/local_group.h"
#include "worker/models/seed.h"
#include "worker/parallel/recording.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

constexpr ShardedDdpOptions kUnevenBuckets = {.bucket_bytes = 500, .first_bucket_bytes = 1};

TEST(ShardedDdp, AStepReducesEachBucketOnceAndGathersItOnce) {
  RunRanks(2, [](comm::Communicator& communicator) {
    Recording recording(&communicator);
    auto parameters = MakeParameters();
    auto strategy =
        CreateShardedDdp(parameters, MakeBuffers(), nullptr, &recording, kUnevenBuckets);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    (*strategy)->BeginStep({0, 1.0});
    for (int m = 0; m < 3; ++m) {
      (*strategy)->BeginMicroBatch(m == 2);
      Loss(parameters, communicator.rank(), 0, m).backward();
    }
    ASSERT_TRUE((*strategy)->FinishBackward().ok());
    (*strategy)->FinishUpdate();
    ASSERT_TRUE((*strategy)->AwaitParameters().ok());
    std::vector<std::string> expected = {"broadcast buffers"};
    const int64_t buckets = (*strategy)->plan().buckets;
    EXPECT_GT(buckets, 2);
    for (int64_t i = 0; i < buckets; ++i) {
      expected.push_back("reduce_scatter bucket " + std::to_string(i));
    }
    for (int64_t i = buckets; i-- > 0;) {  // in the order in which forward needs the buckets
      expected.push_back("all_gather parameters of bucket " + std::to_string(i));
    }
    EXPECT_EQ(recording.operations, expected);
  });
}

TEST(ShardedDdp, ReducingEveryMicroBatchReducesBucketsThatOften) {
  RunRanks(2, [](comm::Communicator& communicator) {
    Recording recording(&communicator);
    auto parameters = MakeParameters();
    auto strategy = CreateShardedDdp(parameters, {}, nullptr, &recording,
                                     {.reduce_every = ShardedDdpOptions::ReduceEvery::kMicroBatch});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    (*strategy)->BeginStep({0, 1.0});
    for (int m = 0; m < 3; ++m) {
      (*strategy)->BeginMicroBatch(m == 2);
      Loss(parameters, communicator.rank(), 0, m).backward();
    }
    ASSERT_TRUE((*strategy)->FinishBackward().ok());
    EXPECT_EQ(recording.operations.size(), 3 * (*strategy)->plan().buckets);
  });
}

TEST(ShardedDdp, FullGradientsAreGoneAfterBackward) {
  RunRanks(2, [](comm::Communicator& communicator) {
    auto parameters = MakeParameters();
    auto strategy = CreateShardedDdp(parameters, {}, nullptr, &communicator, kUnevenBuckets);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    (*strategy)->BeginStep({0, 1.0});
    (*strategy)->BeginMicroBatch(false);
    Loss(parameters, communicator.rank(), 0, 0).backward();
    EXPECT_TRUE(parameters[0].tensor.grad().defined()) << "accumulates here";
    (*strategy)->BeginMicroBatch(true);
    Loss(parameters, communicator.rank(), 0, 1).backward();
    ASSERT_TRUE((*strategy)->FinishBackward().ok());
    for (const auto& [name, tensor] : parameters) EXPECT_FALSE(tensor.grad().defined()) << name;
  });
}

// Returns a number rounded to bfloat16 (to nearest, ties to even), as float32.
float ToBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits += 0x7fff + (bits >> 16 & 1);
  bits &= 0xffff0000;
  std::memcpy(&value, &bits, 4);
  return value;
}

TEST(ShardedDdp, ReductionInBfloat16RoundsEachRanksGradientsOnceAndAddsInFloat32) {
  constexpr int kWorldSize = 3;
  RunRanks(kWorldSize, [](comm::Communicator& communicator) {
    auto parameters = MakeParameters();
    ShardedDdpOptions options = kUnevenBuckets;
    options.reduce_in_bfloat16 = true;
    auto strategy = CreateShardedDdp(parameters, {}, nullptr, &communicator, options);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    (*strategy)->BeginStep({0, 3.0});
    (*strategy)->BeginMicroBatch(true);
    Loss(parameters, communicator.rank(), 0, 0).backward();
    ASSERT_TRUE((*strategy)->FinishBackward().ok());
    std::vector<std::vector<at::Tensor>> of_rank;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      auto plain = MakeParameters();
      Loss(plain, rank, 0, 0).backward();
      of_rank.emplace_back();
      for (const auto& parameter : plain) of_rank.back().push_back(parameter.tensor.grad());
    }
    for (const Piece& piece : (*strategy)->pieces()) {
      if (piece.tensor.scalar_type() != at::kFloat) continue;
      const float* found = piece.tensor.grad().const_data_ptr<float>();
      for (int64_t i = 0; i < piece.tensor.numel(); ++i) {
        float sum = 0;
        for (const auto& gradients : of_rank) {
          const at::Tensor& gradient = gradients[piece.parameter];
          if (!gradient.defined()) continue;
          sum += ToBfloat16(gradient.const_data_ptr<float>()[piece.begin + i]);
        }
        EXPECT_EQ(found[i], sum / 3.0f) << parameters[piece.parameter].name << " " << i;
      }
    }
  });
}

TEST(ShardedDdp, CopiesOfAParameterSeeTheNewValues) {
  RunRanks(2, [](comm::Communicator& communicator) {
    auto parameters = MakeParameters();
    const at::Tensor copy = parameters[2].tensor;  // a handle, like the handle that a unit has
    auto strategy = CreateShardedDdp(parameters, {}, nullptr, &communicator, kUnevenBuckets);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    EXPECT_TRUE(SameBits(copy.detach(), MakeParameters()[2].tensor.detach()));
    c10::NoGradGuard no_grad;
    (*strategy)->BeginStep({0, 1.0});
    for (const Piece& piece : (*strategy)->pieces()) {
      at::Tensor tensor = piece.tensor;
      tensor.fill_(2.5);
    }
    (*strategy)->FinishUpdate();
    ASSERT_TRUE((*strategy)->AwaitParameters().ok());
    EXPECT_EQ(copy.min().item<float>(), 2.5f);
    EXPECT_EQ(copy.max().item<float>(), 2.5f);
  });
}

// A layer of Net. Net has two layers, and its root has the parameter "scale".
class Layer : public models::Unit {
 public:
  explicit Layer(const std::string& name) : Unit(name) {
    weight_ = AddParameter(name + ".weight", at::ones({8, 8}));
  }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override {
    return at::linear(x, parameter(weight_));
  }

 private:
  size_t weight_;
};

class Net : public models::Unit {
 public:
  Net() : Unit("") {
    AddChild(std::make_unique<Layer>("0"));
    AddChild(std::make_unique<Layer>("1"));
    scale_ = AddParameter("scale", at::ones({1}));
  }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext& context) override {
    at::Tensor y = x;
    for (const auto& child : children()) y = context.Call(*child, y);
    return y * parameter(scale_);
  }

 private:
  size_t scale_;
};

TEST(ShardedDdp, AUnitRunsWithItsOwnNewParametersAndDoesNotWaitForOthers) {
  RunRanks(2, [](comm::Communicator& communicator) {
    Recording recording(&communicator);  // a gather writes its output only in Wait
    Net net;
    auto strategy = CreateShardedDdp(net.Parameters(), {}, &net, &recording,
                                     {.bucket_bytes = 1, .first_bucket_bytes = 1});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    (*strategy)->BeginStep({0, 1.0});
    {
      c10::NoGradGuard no_grad;
      for (const Piece& piece : (*strategy)->pieces()) {
        at::Tensor tensor = piece.tensor;
        tensor.fill_(2);
      }
    }
    (*strategy)->FinishUpdate();
    // The root's own parameters come first, because the root runs first.
    EXPECT_EQ(recording.operations,
              (std::vector<std::string>{"all_gather parameters of bucket 0",
                                        "all_gather parameters of bucket 2",
                                        "all_gather parameters of bucket 1"}));
    c10::NoGradGuard no_grad;
    const at::Tensor x = at::ones({1, 8});
    EXPECT_EQ(context->Call(*net.children()[0], x).sum().item<float>(), 8 * 16);
    const bool later_is_there =
        net.children()[1]->own_parameters()[0].tensor.sum().item<float>() == 2 * 64;
    EXPECT_FALSE(later_is_there);
    EXPECT_EQ(context->Call(net, x).sum().item<float>(), 8.0f * 16 * 16 * 2);
  });
}

TEST(ShardedDdp, APeerThatIsGoneFailsTheStepAfterTheGather) {
  auto ranks = comm::LocalGroup::Create(2);
  auto parameters = MakeParameters();
  auto strategy = CreateShardedDdp(parameters, {}, nullptr, ranks[0].get(), {});
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  ranks[1].reset();
  (*strategy)->BeginStep({3, 1.0});
  (*strategy)->FinishUpdate();
  const absl::Status awaited = (*strategy)->AwaitParameters();
  EXPECT_EQ(awaited.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(awaited.message()).find("parameters of bucket"), std::string::npos)
      << awaited;
  (*strategy)->BeginStep({4, 1.0});
  (*strategy)->BeginMicroBatch(true);
  Loss(parameters, 0, 4, 0).backward();
  const absl::Status status = (*strategy)->FinishBackward();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("parameters of bucket"), std::string::npos)
      << "not the first error: " << status;
}

TEST(ShardedDdp, AForwardDoesNotGoOnWithParametersThatDidNotArrive) {
  auto ranks = comm::LocalGroup::Create(2);
  Net net;
  auto strategy = CreateShardedDdp(net.Parameters(), {}, &net, ranks[0].get(),
                                   {.bucket_bytes = 1, .first_bucket_bytes = 1});
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
  ranks[1].reset();
  (*strategy)->BeginStep({3, 1.0});
  (*strategy)->FinishUpdate();
  try {
    context->Call(*net.children()[1], at::ones({1, 8}));
    FAIL() << "the forward went on";
  } catch (const models::ContextError& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kUnavailable) << error.status();
  }
}

// Parameters that no unit has read must be there, too, because the loss may read them.
TEST(ShardedDdp, AfterTheRootAllParametersAreThere) {
  class Skipping : public models::Unit {
   public:
    Skipping() : Unit("") { AddChild(std::make_unique<Layer>("skipped")); }
    at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override { return x; }
  };
  RunRanks(2, [](comm::Communicator& communicator) {
    Recording recording(&communicator);
    Skipping net;
    auto strategy = CreateShardedDdp(net.Parameters(), {}, &net, &recording, {});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    (*strategy)->BeginStep({0, 1.0});
    c10::NoGradGuard no_grad;
    for (const Piece& piece : (*strategy)->pieces()) {
      at::Tensor tensor = piece.tensor;
      tensor.fill_(2);
    }
    (*strategy)->FinishUpdate();
    context->Call(net, at::ones({1, 8}));
    EXPECT_EQ(net.Parameters()[0].tensor.sum().item<float>(), 2 * 64);
  });
}

// Without `b`, the plan leaves the bucket of all four; the frozen `empty` must not keep the memory.
TEST(ShardedDdp, ABucketThatAPlanLeavesIsFreedAlsoWithAFrozenParameterWithoutElements) {
  RunRanks(2, [](comm::Communicator& communicator) {
    const std::vector<models::Parameter> parameters = {
        {"a", at::ones({40}).requires_grad_(true)},
        {"b", at::ones({40}).requires_grad_(true)},
        {"c", at::ones({40}).requires_grad_(true)},
        {"empty", at::empty({0}).requires_grad_(true)}};
    auto strategy = CreateShardedDdp(parameters, {}, nullptr, &communicator, {});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    ASSERT_EQ((*strategy)->plan().buckets, 1);
    const auto bucket = parameters[0].tensor.storage().getWeakStorageImpl();
    KeptMemory kept = (*strategy)->ReleaseModel();
    strategy->reset();
    for (const size_t frozen : {1, 3}) at::Tensor(parameters[frozen].tensor).requires_grad_(false);
    strategy = CreateShardedDdp(parameters, {}, nullptr, &communicator, {}, std::move(kept));
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    EXPECT_TRUE(bucket.expired());
  });
}

// The cases are one huge parameter, slices of padding only, and more ranks than elements.
TEST(ShardedDdp, ASmallParameterHasOneOwnerAndAHugeOneMany) {
  constexpr int kWorldSize = 4;
  RunRanks(kWorldSize, [](comm::Communicator& communicator) {
    const std::vector<models::Parameter> parameters = {
        {"tiny", at::ones({3}).requires_grad_(true)},
        {"huge", at::ones({100, 1000}).requires_grad_(true)}};
    auto strategy = CreateShardedDdp(parameters, {}, nullptr, &communicator,
                                     {.bucket_bytes = 1, .first_bucket_bytes = 1});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    std::map<size_t, int64_t> owned;
    for (const Piece& piece : (*strategy)->pieces()) owned[piece.parameter] += piece.tensor.numel();
    EXPECT_EQ(owned[0], communicator.rank() == 0 ? 3 : 0);
    EXPECT_NEAR(owned[1], 100 * 1000 / kWorldSize, 64);
    (*strategy)->BeginStep({0, kWorldSize});
    (*strategy)->BeginMicroBatch(true);
    (parameters[0].tensor.sum() + parameters[1].tensor.sum()).backward();
    ASSERT_TRUE((*strategy)->FinishBackward().ok());
    for (const Piece& piece : (*strategy)->pieces()) {
      EXPECT_TRUE(piece.tensor.grad().equal(at::ones({piece.tensor.numel()})));
    }
  });
}

}  // namespace
}  // namespace muster::parallel
