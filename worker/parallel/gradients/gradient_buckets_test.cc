#include "worker/parallel/gradients/gradient_buckets.h"

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Context.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/memory/counting_allocator.h"
#include "worker/parallel/gradients/unused_pieces.h"
#include "worker/parallel/model_tensors.h"

namespace muster::parallel {
namespace {

using Memory = GradientBuckets::Memory;

constexpr int kWorldSize = 2;

// Three parameters "a" [5], "b" [3, 7] and "c" [40], each in its own bucket: c in bucket 0, b in
// bucket 1, a in bucket 2.
class Fixture : public testing::Test {
 protected:
  // Fills new memory with NaN, so that a test notices elements that were never written.
  static void SetUpTestSuite() {
    memory::InstallCountingAllocator();
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
  static void TearDownTestSuite() { at::globalContext().setDeterministicAlgorithms(false, false); }

  explicit Fixture(int64_t bucket_bytes = 1) {
    parameters_ = {{"a", at::ones({5})}, {"b", at::ones({3, 7})}, {"c", at::ones({40})}};
    for (auto& parameter : parameters_) parameter.tensor.requires_grad_(true);
    std::vector<size_t> indices;
    const auto specs = SpecsOf(parameters_, TrainedOf(parameters_), true, &indices);
    groups_ = layout::AssignBuckets(specs, kWorldSize,
                                    {.first_bytes = bucket_bytes, .bytes = bucket_bytes});
  }

  std::unique_ptr<GradientBuckets> Create(Memory memory) {
    return std::make_unique<GradientBuckets>(
        parameters_, groups_, memory,
        [this](size_t bucket, at::Tensor flat) {
          if (bucket == throws_at_) throw std::runtime_error("no room");
          order_.push_back(bucket);
          received_.push_back(std::move(flat));
        },
        "rank 1");
  }

  const at::Tensor& parameter(size_t index) const { return parameters_[index].tensor; }
  // Makes every element of the parameter's gradient `factor`.
  void Backward(size_t index, float factor) { (parameter(index) * factor).sum().backward(); }
  void BackwardOfAll(float factor) {
    for (size_t i = 3; i-- > 0;) Backward(i, factor);
  }

  std::vector<models::Parameter> parameters_;
  std::vector<layout::Group> groups_;
  size_t throws_at_ = 100;
  std::vector<size_t> order_;         // the buckets in the order of their handover
  std::vector<at::Tensor> received_;  // the memory of these buckets
};

// Tests for both kinds of memory.
class GradientBucketsTest : public Fixture, public testing::WithParamInterface<Memory> {
 protected:
  std::unique_ptr<GradientBuckets> Create() { return Fixture::Create(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, GradientBucketsTest,
                         testing::Values(Memory::kKept, Memory::kHandedOver), [](const auto& info) {
                           return info.param == Memory::kKept ? "Kept" : "HandedOver";
                         });

// Expects `value` in the first `elements` elements, and zeros after them.
void ExpectFilled(const at::Tensor& flat, int64_t elements, float value) {
  for (int64_t i = 0; i < flat.numel(); ++i) {
    EXPECT_EQ(flat.const_data_ptr<float>()[i], i < elements ? value : 0.0f)
        << i << " of " << flat.numel();
  }
}

TEST_P(GradientBucketsTest, ABucketIsHandedOverWithItsGradientsAndZerosBehindThem) {
  const auto buckets = Create();
  buckets->BeginStep(1);
  buckets->BeginPass(/*completes=*/true);
  BackwardOfAll(3);
  EXPECT_EQ(order_, (std::vector<size_t>{0, 1, 2})) << "before Finish";
  ASSERT_TRUE(buckets->Finish().ok());
  ASSERT_EQ(received_.size(), 3u);
  EXPECT_EQ(received_[2].numel(), 16 * kWorldSize);
  ExpectFilled(received_[0], 40, 3);
  ExpectFilled(received_[1], 21, 3);
  ExpectFilled(received_[2], 5, 3);
}

TEST_P(GradientBucketsTest, BucketsAreHandedOverInTheirOrderWhateverThatOfTheGradients) {
  const auto buckets = Create();
  buckets->BeginStep(1);
  buckets->BeginPass(true);
  Backward(1, 1);
  Backward(0, 1);
  EXPECT_TRUE(order_.empty());
  Backward(2, 1);
  EXPECT_EQ(order_, (std::vector<size_t>{0, 1, 2}));
}

TEST_P(GradientBucketsTest, OnlyWhatNoMicroBatchUsedHasTheMark) {
  const auto buckets = Create();
  for (int step = 0; step < 2; ++step) {
    received_.clear();
    buckets->BeginStep(step);
    for (const bool completes : {false, true}) {
      buckets->BeginPass(completes);
      Backward(2, -0.0f);
      if (!completes) Backward(0, step == 0 ? -0.0f : 1);
    }
    ASSERT_TRUE(buckets->Finish().ok());
    ASSERT_EQ(received_.size(), 3u);
    EXPECT_FALSE(IsMarked(received_[0].narrow(0, 0, 40))) << "a gradient of -0.0";
    EXPECT_TRUE(IsMarked(received_[1].narrow(0, 0, 21)));
    EXPECT_FALSE(IsMarked(received_[2].narrow(0, 0, 5))) << "used in the first micro-batch only";
    EXPECT_TRUE(buckets->used(0) && !buckets->used(1) && buckets->used(2));
  }
}

TEST_P(GradientBucketsTest, GradientsThatAreDroppedAreNoUse) {
  const auto buckets = Create();
  buckets->BeginStep(1);
  buckets->BeginPass(false);
  Backward(0, 1);
  buckets->BeginPass(true, GradientBuckets::Gradients::kDropped);
  BackwardOfAll(1);
  ASSERT_TRUE(buckets->Finish().ok());
  EXPECT_TRUE(buckets->used(0) && !buckets->used(1) && !buckets->used(2));
  EXPECT_TRUE(IsMarked(received_[0].narrow(0, 0, 40)));
  ExpectFilled(received_[2], 5, 1);
}

TEST_P(GradientBucketsTest, APassThatDoesNotCompleteOnlyAddsUp) {
  const auto buckets = Create();
  buckets->BeginStep(1);
  for (const float factor : {1.0f, 10.0f}) {
    buckets->BeginPass(false);
    BackwardOfAll(factor);
  }
  EXPECT_TRUE(order_.empty());
  EXPECT_EQ(parameter(1).grad().min().item<float>(), 11);
  buckets->BeginPass(true);
  BackwardOfAll(100);
  ASSERT_TRUE(buckets->Finish().ok());
  ASSERT_EQ(received_.size(), 3u);
  ExpectFilled(received_[1], 21, 111);
}

TEST_P(GradientBucketsTest, APassWhoseGradientsAreDroppedAddsNothingAndCompletesAtItsTime) {
  const auto buckets = Create();
  for (int64_t step : {1, 2}) {
    order_.clear();
    received_.clear();
    buckets->BeginStep(step);
    buckets->BeginPass(/*completes=*/false);
    Backward(1, 3);
    for (const bool completes : {false, true}) {
      buckets->BeginPass(completes, GradientBuckets::Gradients::kDropped);
      Backward(2, std::nanf(""));
      EXPECT_EQ(order_.size(), completes ? 1u : 0u) << "while backward goes on";
      Backward(1, std::nanf(""));
    }
    EXPECT_EQ(order_, (std::vector<size_t>{0, 1}));
    ASSERT_TRUE(buckets->Finish().ok());
    ASSERT_EQ(received_.size(), 3u);
    ExpectFilled(received_[0], 40, 0);
    ExpectFilled(received_[1], 21, 3);
    ExpectFilled(received_[2], 5, 0);
    if (GetParam() == Memory::kKept) EXPECT_EQ(parameter(1).grad().min().item<float>(), 3);
  }
}

TEST_P(GradientBucketsTest, AfterAPassWhoseGradientsAreDroppedNoneOfThatStepCounts) {
  const auto buckets = Create();
  buckets->BeginStep(3);
  buckets->BeginPass(/*completes=*/false, GradientBuckets::Gradients::kDropped);
  BackwardOfAll(1);
  buckets->BeginPass(/*completes=*/true);
  BackwardOfAll(1);
  EXPECT_EQ(buckets->Finish().message(),
            "rank 1: step 3: a micro-batch with input after one without");
}

TEST_P(GradientBucketsTest, APassAfterOneThatCompletedStartsFromNothing) {
  const auto buckets = Create();
  buckets->BeginStep(1);
  for (const float factor : {1.0f, 10.0f}) {
    buckets->BeginPass(true);
    BackwardOfAll(factor);
    ASSERT_TRUE(buckets->Finish().ok());
  }
  EXPECT_EQ(order_, (std::vector<size_t>{0, 1, 2, 0, 1, 2}));
  ExpectFilled(received_[4], 21, 10);
}

TEST_P(GradientBucketsTest, WhatNoPassUsedIsZeroAndHandedOverAtTheEnd) {
  const auto buckets = Create();
  for (int64_t step = 0; step < 2; ++step) {
    received_.clear();
    order_.clear();
    buckets->BeginStep(step);
    buckets->BeginPass(false);
    Backward(0, 5);  // in this pass only
    buckets->BeginPass(true);
    if (step == 0) Backward(2, 1);  // and in no other pass
    EXPECT_EQ(order_.size(), step == 0 ? 1u : 0u);
    ASSERT_TRUE(buckets->Finish().ok());
    EXPECT_EQ(order_, (std::vector<size_t>{0, 1, 2}));
    ExpectFilled(received_[0], 40, step == 0 ? 1 : 0);
    ExpectFilled(received_[1], 0, 0);
    ExpectFilled(received_[2], 5, 5);
  }
}

TEST_P(GradientBucketsTest, AClosedBucketIsHandedOverInItsTurnWithWhatItHas) {
  const auto buckets = Create();
  for (int64_t step = 0; step < 2; ++step) {
    received_.clear();
    order_.clear();
    buckets->BeginStep(step);
    buckets->BeginPass(false);
    Backward(1, 5);
    for (const size_t bucket : {0, 1, 2}) buckets->Close(bucket);
    EXPECT_TRUE(order_.empty()) << "in a pass that does not complete";
    buckets->BeginPass(true);
    buckets->Close(1);
    EXPECT_TRUE(order_.empty()) << "before the bucket that comes first";
    buckets->Close(0);
    EXPECT_EQ(order_, (std::vector<size_t>{0, 1}));
    buckets->Close(0);  // a second call changes nothing
    Backward(0, 2);
    ASSERT_TRUE(buckets->Finish().ok());
    EXPECT_EQ(order_, (std::vector<size_t>{0, 1, 2}));
    ExpectFilled(received_[0], 0, 0);
    ExpectFilled(received_[1], 21, 5);
    ExpectFilled(received_[2], 5, 2);
  }
}

TEST_P(GradientBucketsTest, ABucketThatIsClosedWhileGradientsAreDroppedHasTheSumsOfBefore) {
  const auto buckets = Create();
  buckets->BeginStep(1);
  buckets->BeginPass(/*completes=*/false);
  Backward(2, 3);
  buckets->BeginPass(/*completes=*/true, GradientBuckets::Gradients::kDropped);
  buckets->Close(0);
  buckets->Close(1);
  EXPECT_EQ(order_, (std::vector<size_t>{0, 1}));
  Backward(0, std::nanf(""));
  ASSERT_TRUE(buckets->Finish().ok());
  ASSERT_EQ(received_.size(), 3u);
  ExpectFilled(received_[0], 40, 3);
  ExpectFilled(received_[1], 21, 0);
  ExpectFilled(received_[2], 5, 0);
}

TEST_P(GradientBucketsTest, AGradientAfterCloseIsNamed) {
  const auto buckets = Create();
  buckets->BeginStep(7);
  buckets->BeginPass(true);
  buckets->Close(0);
  Backward(2, 1);
  EXPECT_EQ(buckets->Finish(),
            absl::FailedPreconditionError(
                "rank 1: step 7: parameter 'c' got another gradient in one backward, "
                "after its bucket was counted ready"));
}

TEST_P(GradientBucketsTest, WhatTheReceiverThrowsInCloseIsAnErrorToo) {
  throws_at_ = 0;
  const auto buckets = Create();
  buckets->BeginStep(7);
  buckets->BeginPass(true);
  EXPECT_NO_THROW(buckets->Close(0));
  EXPECT_EQ(buckets->Finish(), absl::InternalError("rank 1: step 7: gradient of 'c': no room"));
}

TEST_P(GradientBucketsTest, ASecondGradientInOneBackwardIsNamedAndNothingMoreIsHandedOver) {
  const auto buckets = Create();
  buckets->BeginStep(7);
  buckets->BeginPass(true);
  Backward(2, 1);
  Backward(2, 1);
  Backward(1, 1);
  Backward(0, 1);
  EXPECT_EQ(buckets->Finish(),
            absl::FailedPreconditionError(
                "rank 1: step 7: parameter 'c' got another gradient in one backward, "
                "after its bucket was counted ready"));
  EXPECT_EQ(order_, (std::vector<size_t>{0}));
  buckets->BeginStep(8);  // a new step has no error
  buckets->BeginPass(true);
  BackwardOfAll(2);
  EXPECT_TRUE(buckets->Finish().ok());
  EXPECT_EQ(order_, (std::vector<size_t>{0, 0, 1, 2}));
  ExpectFilled(received_.back(), 5, 2);
}

TEST_P(GradientBucketsTest, WhatTheReceiverThrowsIsAnErrorAndDoesNotPassThroughAutograd) {
  throws_at_ = 1;
  const auto buckets = Create();
  buckets->BeginStep(7);
  buckets->BeginPass(true);
  EXPECT_NO_THROW(BackwardOfAll(1));
  EXPECT_EQ(buckets->Finish(), absl::InternalError("rank 1: step 7: gradient of 'b': no room"));
  EXPECT_EQ(order_, (std::vector<size_t>{0}));
}

using BucketMemoryTest = Fixture;

TEST_F(BucketMemoryTest, KeptMemoryIsThereFromTheStartAndGradientsStayViewsOfIt) {
  const memory::Usage before = memory::MemoryInUse();
  const auto buckets = Create(Memory::kKept);
  const uint64_t all = 4 * (64 + 32 + 32);
  EXPECT_EQ(memory::MemoryInUse().of(memory::Purpose::kBuckets).bytes,
            before.of(memory::Purpose::kBuckets).bytes + all);
  buckets->BeginStep(1);
  buckets->BeginPass(true);
  BackwardOfAll(1);
  ASSERT_TRUE(buckets->Finish().ok());
  for (size_t i = 0; i < 3; ++i) {
    received_[2 - i].mul_(8);  // as a reduction changes the values
    EXPECT_EQ(parameter(i).grad().sizes(), parameter(i).sizes());
    EXPECT_EQ(parameter(i).grad().min().item<float>(), 8);
  }
}

TEST_F(BucketMemoryTest, MemoryThatIsHandedOverBeginsWithTheFirstGradientAndIsTheReceivers) {
  const uint64_t before = memory::MemoryInUse().of(memory::Purpose::kBuckets).bytes;
  const auto in_use = [before] {
    return memory::MemoryInUse().of(memory::Purpose::kBuckets).bytes - before;
  };
  const auto buckets = Create(Memory::kHandedOver);
  for (int64_t step = 0; step < 2; ++step) {
    buckets->BeginStep(step);
    buckets->BeginPass(true);
    EXPECT_EQ(in_use(), 0u);
    Backward(1, 1);
    EXPECT_EQ(in_use(), 4 * 32u);
    EXPECT_TRUE(parameter(1).grad().defined());
    Backward(2, 1);
    EXPECT_EQ(in_use(), 4 * (32 + 64u));
    EXPECT_FALSE(parameter(1).grad().defined());
    EXPECT_FALSE(parameter(2).grad().defined());
    received_.clear();
    EXPECT_EQ(in_use(), 0u) << "somebody else holds it";
    ASSERT_TRUE(buckets->Finish().ok());
    received_.clear();
    EXPECT_EQ(in_use(), 0u);
  }
}

// Several parameters in one bucket. The gaps between them are zero, too.
class OneBucketTest : public Fixture {
 protected:
  OneBucketTest() : Fixture(1 << 20) {}
};

TEST_F(OneBucketTest, GapsBetweenParametersAreZero) {
  for (const Memory memory : {Memory::kKept, Memory::kHandedOver}) {
    received_.clear();
    const auto buckets = Create(memory);
    buckets->BeginStep(1);
    buckets->BeginPass(true);
    BackwardOfAll(1);
    ASSERT_TRUE(buckets->Finish().ok());
    ASSERT_EQ(received_.size(), 1u);
    // c begins at 0, b at 48, a at 80; the size is a multiple of 32.
    EXPECT_EQ(received_[0].numel(), 96);
    EXPECT_EQ(received_[0].sum().item<float>(), 40 + 21 + 5);
    ExpectFilled(received_[0].narrow(0, 48, 32), 21, 1);
  }
}

TEST_F(OneBucketTest, ABucketIsCompleteWithItsLastGradient) {
  const auto buckets = Create(Memory::kHandedOver);
  buckets->BeginStep(1);
  buckets->BeginPass(true);
  Backward(0, 1);
  Backward(2, 1);
  EXPECT_TRUE(order_.empty());
  Backward(1, 1);
  EXPECT_EQ(order_.size(), 1u);
}

}  // namespace
}  // namespace muster::parallel
