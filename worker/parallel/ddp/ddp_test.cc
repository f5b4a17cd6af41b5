#include "worker/parallel/ddp/ddp.h"

#include <cstring>
#include <functional>
#include <thread>

#include "ATen/TensorOperators.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/item.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "gtest/gtest.h"
#include "torch/csrc/autograd/variable.h"
#include "worker/comm/local/local_group.h"

namespace muster::parallel {
namespace {

// Numbers that depend on `seed` only, over several magnitudes.
at::Tensor Numbers(at::IntArrayRef sizes, uint64_t seed) {
  at::Tensor tensor = at::empty(sizes);
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    tensor.data_ptr<float>()[i] =
        std::ldexp(static_cast<float>(static_cast<int32_t>(state >> 32)) / (1u << 31),
                   static_cast<int>(state >> 20 & 7) - 4);
  }
  return tensor;
}

// Odd sizes; `unused` takes no part in the loss, `shared` takes part twice.
std::vector<DdpParameter> MakeParameters() {
  std::vector<DdpParameter> parameters = {{"first", Numbers({7, 13}, 1)},
                                          {"bias", Numbers({13}, 2)},
                                          {"shared", Numbers({13, 13}, 3)},
                                          {"unused", Numbers({5}, 4)},
                                          {"only_first_micro_batch", Numbers({13}, 5)},
                                          {"last", Numbers({13, 3}, 6)},
                                          {"empty", at::empty({0})}};
  for (auto& parameter : parameters) parameter.tensor.requires_grad_(true);
  return parameters;
}

at::Tensor Loss(const std::vector<DdpParameter>& p, int rank, int64_t step, int micro_batch) {
  const at::Tensor x = Numbers({4, 7}, 1000 * step + 100 * micro_batch + rank);
  at::Tensor h = (x.matmul(p[0].tensor) + p[1].tensor).tanh();
  h = h.matmul(p[2].tensor).tanh().matmul(p[2].tensor);
  if (micro_batch == 0) h = h * p[4].tensor;
  return h.matmul(p[5].tensor).square().mean() + p[6].tensor.sum();
}

// The independent run: one process, plain autograd per rank, sums in rank order, one division.
std::vector<at::Tensor> Reference(int world_size, int64_t step, int micro_batches, float divisor) {
  std::vector<at::Tensor> sums;
  for (int rank = 0; rank < world_size; ++rank) {
    auto parameters = MakeParameters();
    for (int m = 0; m < micro_batches; ++m) Loss(parameters, rank, step, m).backward();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& own = parameters[i].tensor.grad();
      const at::Tensor gradient = own.defined() ? own : at::zeros_like(parameters[i].tensor);
      if (rank == 0) {
        sums.push_back(gradient.clone());
      } else {
        for (int64_t j = 0; j < gradient.numel(); ++j) {
          sums[i].data_ptr<float>()[j] += gradient.const_data_ptr<float>()[j];
        }
      }
    }
  }
  for (at::Tensor& sum : sums) {
    for (int64_t j = 0; j < sum.numel(); ++j) sum.data_ptr<float>()[j] /= divisor;
  }
  return sums;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

void RunRanks(int world_size, const std::function<void(comm::Communicator& ranks)>& body) {
  auto ranks = comm::LocalGroup::Create(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      body(*ranks[rank]);
      ranks[rank].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Group {
  int world_size;
  int micro_batches;
  DdpOptions options;
  int64_t buckets;
};

class DdpEqualsReference : public testing::TestWithParam<Group> {};

TEST_P(DdpEqualsReference, BitwiseOverSeveralSteps) {
  const Group& setup = GetParam();
  RunRanks(setup.world_size, [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    auto ddp = Ddp::Create(parameters, {}, &ranks, setup.options);
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    EXPECT_EQ((*ddp)->bucket_count(), setup.buckets);
    for (int64_t step = 0; step < 3; ++step) {
      const float divisor = setup.world_size * setup.micro_batches;
      (*ddp)->BeginStep(step, divisor);
      for (int m = 0; m < setup.micro_batches; ++m) {
        (*ddp)->BeginMicroBatch(m + 1 == setup.micro_batches);
        Loss(parameters, ranks.rank(), step, m).backward();
      }
      const absl::Status status = (*ddp)->FinishBackward();
      ASSERT_TRUE(status.ok()) << status;
      const auto expected = Reference(setup.world_size, step, setup.micro_batches, divisor);
      for (size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_TRUE(SameBits(parameters[i].tensor.grad(), expected[i]))
            << parameters[i].name << " in step " << step;
      }
    }
    const absl::Status equal = (*ddp)->VerifyParametersEqual(3);
    EXPECT_TRUE(equal.ok()) << equal;
  });
}

constexpr DdpOptions kOneBucket = {};
constexpr DdpOptions kUnevenBuckets = {.bucket_bytes = 500, .first_bucket_bytes = 1};
constexpr DdpOptions kOneBucketEach = {.bucket_bytes = 1, .first_bucket_bytes = 1};

INSTANTIATE_TEST_SUITE_P(All, DdpEqualsReference,
                         testing::Values(Group{1, 1, kOneBucket, 1}, Group{2, 1, kOneBucket, 1},
                                         Group{3, 1, kOneBucket, 1}, Group{4, 1, kOneBucket, 1},
                                         Group{1, 3, kUnevenBuckets, 3},
                                         Group{2, 3, kUnevenBuckets, 3},
                                         Group{3, 2, kUnevenBuckets, 3},
                                         Group{4, 2, kOneBucketEach, 6}));

// As BatchNorm's: an average and a count.
std::vector<DdpBuffer> MakeBuffers() {
  return {{"mean", at::zeros({3})}, {"count", at::zeros({}, at::kLong)}, {"empty", at::zeros({0})}};
}

// What a forward does with them, differently on each rank.
void Count(const std::vector<DdpBuffer>& buffers, int rank) {
  buffers[0].tensor.mul_(0.5).add_(rank + 1);
  buffers[1].tensor.add_((int64_t{1} << 40) + rank);
}

class DdpBuffers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, DdpBuffers, testing::Values(1, 2, 3, 4));

TEST_P(DdpBuffers, AreThoseOfTheHighestRankAfterItsLastForward) {
  const int highest = GetParam() - 1;
  RunRanks(GetParam(), [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    const auto buffers = MakeBuffers();
    auto ddp = Ddp::Create(parameters, buffers, &ranks, kUnevenBuckets);
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    const auto expected = MakeBuffers();
    for (int64_t step = 0; step < 3; ++step) {
      (*ddp)->BeginStep(step, 1.0);
      for (int m = 0; m < 2; ++m) {
        (*ddp)->BeginMicroBatch(m == 1);
        const at::Tensor loss = Loss(parameters, ranks.rank(), step, m);
        Count(buffers, ranks.rank());
        loss.backward();
        Count(expected, highest);
      }
      const absl::Status status = (*ddp)->FinishBackward();
      ASSERT_TRUE(status.ok()) << status;
      for (size_t i = 0; i < buffers.size(); ++i) {
        EXPECT_TRUE(SameBits(buffers[i].tensor, expected[i].tensor))
            << buffers[i].name << " in step " << step;
      }
    }
    const absl::Status equal = (*ddp)->VerifyParametersEqual(3);
    EXPECT_TRUE(equal.ok()) << equal;
  });
}

TEST_P(DdpBuffers, AreSynchronizedAlsoWhereBackwardReachesNoParameter) {
  RunRanks(GetParam(), [&](comm::Communicator& ranks) {
    for (const auto& parameters : {MakeParameters(), std::vector<DdpParameter>()}) {
      const auto buffers = MakeBuffers();
      auto ddp = Ddp::Create(parameters, buffers, &ranks, {});
      ASSERT_TRUE(ddp.ok()) << ddp.status();
      (*ddp)->BeginStep(0, 1.0);
      (*ddp)->BeginMicroBatch(true);
      Count(buffers, ranks.rank());
      ASSERT_TRUE((*ddp)->FinishBackward().ok());
      EXPECT_EQ(buffers[0].tensor[2].item<float>(), GetParam());
    }
  });
}

TEST_P(DdpBuffers, AreWhatTheyWereBeforeAStepThatIsLeftOut) {
  RunRanks(GetParam(), [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    const auto buffers = MakeBuffers();
    auto ddp = Ddp::Create(parameters, buffers, &ranks, {});
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    buffers[1].tensor.fill_(7);  // as loading a checkpoint does
    for (int64_t step = 0; step < 2; ++step) {
      (*ddp)->BeginStep(step, 1.0);
      (*ddp)->BeginMicroBatch(true);
      Count(buffers, ranks.rank());
      ASSERT_TRUE((*ddp)->FinishBackward().ok());
      EXPECT_NE(buffers[1].tensor.item<int64_t>(), 7);
      (*ddp)->RestoreBuffers();
      EXPECT_EQ(buffers[0].tensor.abs().sum().item<float>(), 0);
      EXPECT_EQ(buffers[1].tensor.item<int64_t>(), 7);
    }
  });
}

TEST(Ddp, BuffersThatDifferBetweenRanksAreNamed) {
  RunRanks(3, [](comm::Communicator& ranks) {
    const auto buffers = MakeBuffers();
    auto ddp = Ddp::Create(MakeParameters(), buffers, &ranks, {});
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    if (ranks.rank() == 1) buffers[1].tensor.add_(1);
    EXPECT_EQ(std::string((*ddp)->VerifyParametersEqual(3).message()),
              "step 3: buffer 'count' differs from rank 0's on rank 1");
  });
}

TEST(Ddp, ParametersThatDifferBetweenRanksAreNamed) {
  RunRanks(3, [](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    auto ddp = Ddp::Create(parameters, MakeBuffers(), &ranks, {});
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    if (ranks.rank() == 2) parameters[5].tensor.detach().view(-1)[38] += 1;
    EXPECT_EQ(std::string((*ddp)->VerifyParametersEqual(3).message()),
              "step 3: parameter 'last' differs from rank 0's on rank 2");
  });
}

TEST(Ddp, GradientsAreViewsOfOneBucketAtAlignedPlaces) {
  auto ranks = comm::LocalGroup::Create(1);
  auto parameters = MakeParameters();
  auto ddp = Ddp::Create(parameters, {}, ranks[0].get(), {});
  ASSERT_TRUE(ddp.ok()) << ddp.status();
  (*ddp)->BeginStep(0, 1.0);
  (*ddp)->BeginMicroBatch(true);
  Loss(parameters, 0, 0, 0).backward();
  ASSERT_TRUE((*ddp)->FinishBackward().ok());
  for (const auto& parameter : parameters) {
    EXPECT_EQ(parameter.tensor.grad().storage_offset() % 16, 0) << parameter.name;
    EXPECT_TRUE(parameter.tensor.grad().storage().is_alias_of(
        parameters[0].tensor.grad().storage()));
  }
}

TEST(Ddp, NothingIsReducedBeforeTheLastMicroBatch) {
  auto ranks = comm::LocalGroup::Create(1);
  auto parameters = MakeParameters();
  auto ddp = Ddp::Create(parameters, {}, ranks[0].get(), {});
  ASSERT_TRUE(ddp.ok()) << ddp.status();
  (*ddp)->BeginStep(0, 8.0);
  (*ddp)->BeginMicroBatch(false);
  Loss(parameters, 0, 0, 0).backward();
  auto plain = MakeParameters();
  Loss(plain, 0, 0, 0).backward();
  EXPECT_TRUE(SameBits(parameters[0].tensor.grad(), plain[0].tensor.grad()));  // not divided
}

TEST(Ddp, DestructionRemovesHooksAndGradients) {
  auto ranks = comm::LocalGroup::Create(1);
  auto parameters = MakeParameters();
  for (int round = 0; round < 2; ++round) {
    auto ddp = Ddp::Create(parameters, {}, ranks[0].get(), {});
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    EXPECT_NE(torch::autograd::impl::post_acc_grad_hooks(parameters[0].tensor), nullptr);
    (*ddp)->BeginStep(0, 1.0);
    (*ddp)->BeginMicroBatch(true);
    Loss(parameters, 0, 0, 0).backward();
    ASSERT_TRUE((*ddp)->FinishBackward().ok());
    ddp->reset();
    for (const auto& parameter : parameters) {
      EXPECT_EQ(torch::autograd::impl::post_acc_grad_hooks(parameter.tensor), nullptr);
      EXPECT_FALSE(parameter.tensor.grad().defined());
    }
  }
  Loss(parameters, 0, 0, 0).backward();  // plain autograd again
  EXPECT_FALSE(parameters[3].tensor.grad().defined());
}

TEST(Ddp, APeerThatIsGoneFailsTheStepNamingBucketAndStep) {
  auto ranks = comm::LocalGroup::Create(2);
  ranks[1].reset();
  auto parameters = MakeParameters();
  auto ddp = Ddp::Create(parameters, {}, ranks[0].get(), {});
  ASSERT_TRUE(ddp.ok()) << ddp.status();
  (*ddp)->BeginStep(17, 2.0);
  (*ddp)->BeginMicroBatch(true);
  Loss(parameters, 0, 0, 0).backward();  // throws nothing
  const absl::Status status = (*ddp)->FinishBackward();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(status.message())
                .rfind("rank 0: all_reduce 'bucket 0' at step 17: rank 1 is gone", 0),
            0)
      << status;
}

TEST(Ddp, ASecondBackwardInTheLastMicroBatchIsAnErrorNotAWrongGradient) {
  auto ranks = comm::LocalGroup::Create(1);
  auto parameters = MakeParameters();
  auto ddp = Ddp::Create(parameters, {}, ranks[0].get(), {});
  ASSERT_TRUE(ddp.ok()) << ddp.status();
  (*ddp)->BeginStep(4, 1.0);
  (*ddp)->BeginMicroBatch(true);
  Loss(parameters, 0, 0, 0).backward();
  Loss(parameters, 0, 0, 0).backward();
  const absl::Status status = (*ddp)->FinishBackward();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  (*ddp)->BeginStep(5, 1.0);  // a new step is clean
  (*ddp)->BeginMicroBatch(true);
  Loss(parameters, 0, 0, 0).backward();
  EXPECT_TRUE((*ddp)->FinishBackward().ok());
}

// An expert, say: used in some steps only.
TEST(Ddp, AParameterThatIsUsedNoLongerHasAZeroGradientAgain) {
  RunRanks(2, [](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    auto ddp = Ddp::Create(parameters, {}, &ranks, kUnevenBuckets);
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    const at::Tensor& sometimes = parameters[3].tensor;
    for (int64_t step = 0; step < 4; ++step) {
      (*ddp)->BeginStep(step, 1.0);
      (*ddp)->BeginMicroBatch(true);
      at::Tensor loss = Loss(parameters, ranks.rank(), step, 0);
      if (step % 2 == 0) loss = loss + sometimes.sum();
      loss.backward();
      ASSERT_TRUE((*ddp)->FinishBackward().ok());
      ASSERT_TRUE(sometimes.grad().defined());
      EXPECT_EQ(sometimes.grad().abs().max().item<float>(), step % 2 == 0 ? 2 : 0) << step;
    }
  });
}

// Writes down what is issued.
class Recording : public comm::Communicator {
 public:
  explicit Recording(comm::Communicator* communicator) : communicator_(communicator) {}
  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  std::unique_ptr<comm::Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                        comm::OpLabel label) override {
    operations.push_back(label.what);
    return communicator_->AllGather(out, in, label);
  }
  std::unique_ptr<comm::Work> AllReduceSum(const at::Tensor& flat, comm::OpLabel label,
                                           double divide_by) override {
    operations.push_back(label.what);
    return communicator_->AllReduceSum(flat, label, divide_by);
  }
  std::unique_ptr<comm::Work> Broadcast(const at::Tensor& flat, int root,
                                        comm::OpLabel label) override {
    operations.push_back(label.what);
    return communicator_->Broadcast(flat, root, label);
  }
  std::unique_ptr<comm::Work> ReduceScatterSum(const at::Tensor& out, const at::Tensor& in,
                                               comm::OpLabel label, double divide_by) override {
    operations.push_back(label.what);
    return communicator_->ReduceScatterSum(out, in, label, divide_by);
  }
  std::unique_ptr<comm::Work> AllToAll(const at::Tensor& out, const std::vector<int64_t>& out_sizes,
                                       const at::Tensor& in, const std::vector<int64_t>& in_sizes,
                                       comm::OpLabel label) override {
    operations.push_back(label.what);
    return communicator_->AllToAll(out, out_sizes, in, in_sizes, label);
  }
  int64_t bytes_sent() const override { return communicator_->bytes_sent(); }
  void Abort(const absl::Status& why) override { communicator_->Abort(why); }

  std::vector<std::string> operations;

 private:
  comm::Communicator* const communicator_;
};

TEST(Ddp, AStepSendsTheBuffersOnceAndThenTheBucketsInOrder) {
  for (const bool with_buffers : {true, false}) {
    auto ranks = comm::LocalGroup::Create(1);
    Recording recording(ranks[0].get());
    auto parameters = MakeParameters();
    auto ddp = Ddp::Create(parameters, with_buffers ? MakeBuffers() : std::vector<DdpBuffer>(),
                           &recording, kUnevenBuckets);
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    (*ddp)->BeginStep(0, 1.0);
    for (int m = 0; m < 3; ++m) {
      (*ddp)->BeginMicroBatch(m == 2);
      Loss(parameters, 0, 0, m).backward();
    }
    ASSERT_TRUE((*ddp)->FinishBackward().ok());
    std::vector<std::string> expected = {"bucket 0", "bucket 1", "bucket 2"};
    if (with_buffers) expected.insert(expected.begin(), "buffers");
    EXPECT_EQ(recording.operations, expected);
  }
}

TEST(Ddp, APeerThatIsGoneFailsTheBuffersToo) {
  auto ranks = comm::LocalGroup::Create(2);
  ranks[1].reset();
  const auto buffers = MakeBuffers();
  auto ddp = Ddp::Create({}, buffers, ranks[0].get(), {});
  ASSERT_TRUE(ddp.ok()) << ddp.status();
  (*ddp)->BeginStep(17, 1.0);
  (*ddp)->BeginMicroBatch(true);
  const absl::Status status = (*ddp)->FinishBackward();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(status.message()).rfind("rank 0: broadcast 'buffers' at step 17: ", 0), 0)
      << status;
}

TEST(Ddp, BucketSizesAreAboveZero) {
  auto ranks = comm::LocalGroup::Create(1);
  for (const DdpOptions& options :
       {DdpOptions{.bucket_bytes = 0}, DdpOptions{.first_bucket_bytes = -1}}) {
    EXPECT_EQ(Ddp::Create(MakeParameters(), {}, ranks[0].get(), options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Ddp, WithoutParametersAStepIsEmpty) {
  auto ranks = comm::LocalGroup::Create(1);
  auto ddp = Ddp::Create({}, {}, ranks[0].get(), {});
  ASSERT_TRUE(ddp.ok()) << ddp.status();
  (*ddp)->BeginStep(0, 1.0);
  EXPECT_TRUE((*ddp)->FinishBackward().ok());
}

TEST(Ddp, ParametersThatDoNotFitAreNamed) {
  auto ranks = comm::LocalGroup::Create(1);
  const auto refused = [&](std::vector<DdpParameter> parameters, const std::string& text) {
    auto ddp = Ddp::Create(std::move(parameters), {}, ranks[0].get(), {});
    EXPECT_EQ(ddp.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(ddp.status().message()), text);
  };
  const auto leaf = [] { return at::empty({3, 2}).requires_grad_(true); };
  refused({{"w", at::Tensor()}}, "parameter 'w' is undefined");
  refused({{"w", at::empty({3})}}, "parameter 'w' is no trainable leaf");
  refused({{"w", leaf()}, {"w", leaf()}}, "parameter 'w' is there twice");
  const at::Tensor tied = leaf();
  refused({{"a", tied}, {"b", tied}}, "parameter 'b' is the same tensor as another one");
  refused({{"a", leaf()}, {"b", at::empty({3}, at::kDouble).requires_grad_(true)}},
          "parameter 'b' has another type than 'a'");
  refused({{"a", at::empty({3}, at::kHalf).requires_grad_(true)}},
          "parameter 'a' is Half, not float32 or float64");
  refused({{"a", at::empty({3, 2}).t().requires_grad_(true)}}, "parameter 'a' is not contiguous");
}

TEST(Ddp, BuffersThatDoNotFitAreNamed) {
  auto ranks = comm::LocalGroup::Create(1);
  const auto refused = [&](std::vector<DdpBuffer> buffers, const std::string& text) {
    auto ddp = Ddp::Create(MakeParameters(), std::move(buffers), ranks[0].get(), {});
    EXPECT_EQ(ddp.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(ddp.status().message()), text);
  };
  refused({{"b", at::Tensor()}}, "buffer 'b' is undefined");
  refused({{"b", at::empty({3}).requires_grad_(true)}}, "buffer 'b' requires a gradient");
  refused({{"b", at::empty({3, 2}).t()}}, "buffer 'b' is not contiguous");
  refused({{"b", at::empty({3}, at::kHalf)}}, "buffer 'b' is Half, not float32 or int64");
  refused({{"b", at::empty({3})}, {"b", at::empty({3})}}, "buffer 'b' is there twice");
}

}  // namespace
}  // namespace muster::parallel
