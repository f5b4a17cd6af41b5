// Reduce-scatter, on every implementation and world size.
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/comm/conformance.h"

namespace muster::comm {
namespace {

constexpr int64_t kPartSizes[] = {0, 1, 15, 16, 17, 63, 1000, 4099, 100001};

class ReduceScatter : public Conformance {
 protected:
  template <typename T>
  void CheckSums(double divide_by) {
    Run([&](Communicator& ranks) {
      int64_t step = 0;
      for (int64_t size : kPartSizes) {
        const int64_t elements = size * world_size();
        const auto contribution = Contribution<T>(ranks.rank(), elements, step);
        const auto expected =
            Part(SerialSum<T>(world_size(), elements, step, static_cast<T>(divide_by)),
                 ranks.rank(), world_size());
        const at::Tensor in = ToTensor(contribution), out = Full({size}, 99, in.options());
        const absl::Status status =
            ranks.ReduceScatterSum(out, in, {"apart", step}, divide_by)->Wait();
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(SameBits(out, expected)) << size << " elements";
        EXPECT_TRUE(SameBits(in, contribution)) << "changed the input of " << size << " elements";

        const at::Tensor own = in.narrow(0, ranks.rank() * size, size);
        const absl::Status in_place =
            ranks.ReduceScatterSum(own, in, {"in place", step}, divide_by)->Wait();
        ASSERT_TRUE(in_place.ok()) << in_place;
        auto changed = contribution;
        std::copy(expected.begin(), expected.end(), changed.begin() + ranks.rank() * size);
        EXPECT_TRUE(SameBits(in, changed)) << size << " elements in place";
        ++step;
      }
    });
  }
};

TEST_P(ReduceScatter, SumsAreInRankOrderBitwiseFloat32) { CheckSums<float>(1.0); }
TEST_P(ReduceScatter, SumsAreInRankOrderBitwiseFloat64) { CheckSums<double>(1.0); }
TEST_P(ReduceScatter, SumsAreExactInt64) { CheckSums<int64_t>(1.0); }
TEST_P(ReduceScatter, SumsAreDividedOnceFloat32) { CheckSums<float>(7.0); }
TEST_P(ReduceScatter, SumsAreDividedOnceFloat64) { CheckSums<double>(3.0); }

TEST_P(ReduceScatter, GivesTheBitsOfAnAllReduce) {
  Run([&](Communicator& ranks) {
    for (int64_t size : {1, 31, 5000}) {
      const at::Tensor in = ToTensor(Contribution<float>(ranks.rank(), size * world_size(), size));
      const at::Tensor all = in.clone(), out = Empty({size});
      const auto scatter = ranks.ReduceScatterSum(out, in, {"part", size}, 3.0);
      const auto reduce = ranks.AllReduceSum(all, {"all", size}, 3.0);
      ASSERT_TRUE(scatter->Wait().ok() && reduce->Wait().ok());
      EXPECT_TRUE(out.equal(all.narrow(0, ranks.rank() * size, size)));
    }
  });
}

// Returns bfloat16 numbers: the upper half of the bits of float32 numbers.
std::vector<uint16_t> Bfloat16Contribution(int rank, int64_t elements, int seed) {
  std::vector<uint16_t> upper;
  for (float value : Contribution<float>(rank, elements, seed)) {
    upper.push_back(std::bit_cast<uint32_t>(value) >> 16);
  }
  return upper;
}

TEST_P(ReduceScatter, Bfloat16IsSummedInRankOrderInFloat32) {
  Run([&](Communicator& ranks) {
    for (const float divide_by : {1.0f, 7.0f}) {
      for (int64_t size : kPartSizes) {
        const int64_t elements = size * world_size();
        std::vector<float> expected(size);
        for (int rank = 0; rank < world_size(); ++rank) {
          const auto part =
              Part(Bfloat16Contribution(rank, elements, size), ranks.rank(), world_size());
          for (int64_t i = 0; i < size; ++i) {
            const float value = std::bit_cast<float>(static_cast<uint32_t>(part[i]) << 16);
            expected[i] = rank == 0 ? value : expected[i] + value;
          }
        }
        for (float& value : expected) value /= divide_by;

        const auto contribution = Bfloat16Contribution(ranks.rank(), elements, size);
        const at::Tensor bits = at::empty({elements}, at::kBFloat16), out = Full({size}, 99.0f);
        if (elements > 0) std::memcpy(bits.mutable_data_ptr(), contribution.data(), bits.nbytes());
        const at::Tensor in = bits.to(TestDevice());
        const absl::Status status =
            ranks.ReduceScatterSum(out, in, {"bfloat16", size}, divide_by)->Wait();
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(SameBits(out, expected)) << size << " elements";
        EXPECT_TRUE(SameBits(in, contribution)) << "changed the input";
      }
    }
  });
}

TEST_P(ReduceScatter, SeveralInFlightAreSummedEachFromItsOwnMemory) {
  Run([&](Communicator& ranks) {
    constexpr int kOperations = 20;
    for (int round = 0; round < 3; ++round) {  // scratch memory is used again
      std::vector<at::Tensor> outs;
      std::vector<std::unique_ptr<Work>> works;
      for (int i = 0; i < kOperations; ++i) {
        const int64_t size = 1000 * ((i + 7 * round) % kOperations) + i;
        // The operation alone holds the input, which must live until all its data are sent.
        const at::Tensor in = ToTensor(Contribution<float>(ranks.rank(), size * world_size(), i));
        outs.push_back(i % 3 == 0 ? in.narrow(0, ranks.rank() * size, size) : Empty({size}));
        works.push_back(ranks.ReduceScatterSum(outs[i], in, {"bucket", i}, 5.0));
      }
      for (int i = kOperations - 1; i >= 0; --i) {
        const absl::Status status = works[i]->Wait();
        ASSERT_TRUE(status.ok()) << status;
        const auto all = SerialSum<float>(world_size(), outs[i].numel() * world_size(), i, 5.0f);
        EXPECT_TRUE(SameBits(outs[i], Part(all, ranks.rank(), world_size())))
            << i << " in round " << round;
      }
    }
  });
}

TEST_P(ReduceScatter, TensorsAreReleasedOnceItIsDone) {
  Run([&](Communicator& ranks) {
    const at::Tensor in = Ones({1000 * world_size()}), out = Empty({1000});
    const auto work = ranks.ReduceScatterSum(out, in, {"bucket", 1});
    ASSERT_TRUE(work->Wait().ok());
    EXPECT_EQ(in.use_count(), 1);
    EXPECT_EQ(out.use_count(), 1);
  });
}

TEST_P(ReduceScatter, SendsEachOfTheOthersItsPart) {
  Run([&](Communicator& ranks) {
    const at::Tensor in = Ones({1000 * world_size()});
    ASSERT_TRUE(ranks.ReduceScatterSum(Empty({1000}), in, {"float32", 1})->Wait().ok());
    // (W - 1) / W of the input.
    EXPECT_EQ(ranks.bytes_sent(), 4000 * (world_size() - 1));
    ASSERT_TRUE(
        ranks.ReduceScatterSum(Empty({1000}), in.to(at::kBFloat16), {"bfloat16", 2})->Wait().ok());
    EXPECT_EQ(ranks.bytes_sent(), 6000 * (world_size() - 1));
  });
}

TEST_P(ReduceScatter, WrongCallsAreRefusedByNameAndTheCommunicatorStaysUsable) {
  Run([&](Communicator& ranks) {
    const int n = world_size();
    const auto refused = [&](const at::Tensor& out, const at::Tensor& in, const char* text,
                             double divide_by = 1.0) {
      ExpectRefused(ranks, ranks.ReduceScatterSum(out, in, {"wrong", 4}, divide_by), text);
    };
    refused(Empty({3}), Empty({n * 3 + 1}), "reduce_scatter 'wrong' at step 4: the input holds");
    refused(Empty({3}), Empty({n * 3 + 1}), "times the output's 3 Float");
    refused(Empty({3}, at::kDouble), Empty({n * 3}), "cannot sum Float into Double");
    refused(Empty({3}, at::kBFloat16), Empty({n * 3}, at::kBFloat16),
            "cannot sum BFloat16 into BFloat16");
    refused(Empty({3}, at::kDouble), Empty({n * 3}, at::kBFloat16),
            "cannot sum BFloat16 into Double");
    refused(Empty({3}, at::kInt), Empty({n * 3}, at::kInt), "cannot sum Int into Int");
    refused(Empty({3}, at::kLong), Empty({n * 3}, at::kLong), "cannot be divided", 2.0);
    refused(Empty({3}), Empty({n * 3}), "divisor", -1.0);
    refused(at::Tensor(), Empty({n}), "the output is undefined");
    refused(Empty({1}), at::Tensor(), "the input is undefined");
    refused(Empty({2, 3}).t(), Empty({n * 6}), "the output is not contiguous");
    refused(Empty({3}), Empty({n * 3}, at::TensorOptions(at::kMeta)), "the input is on meta");
    // An in-place output must be exactly this rank's own part of the input.
    const at::Tensor whole = Ones({n * 3 + 1});
    const std::string overlap =
        "the output overlaps the input without being part " + std::to_string(ranks.rank());
    refused(whole.narrow(0, ranks.rank() * 3 + 1, 3), whole.narrow(0, 0, n * 3), overlap.c_str());
    const at::Tensor raw = Empty({n * 12}, at::kByte);
    refused(raw.view(at::kFloat).narrow(0, 0, 3), raw.narrow(0, 0, n * 6).view(at::kBFloat16),
            "overlaps");
    if (n > 1) {
      refused(whole.narrow(0, (ranks.rank() + 1) % n * 3, 3), whole.narrow(0, 0, n * 3),
              overlap.c_str());
    }
    // Memory next to the input is not part of the input.
    const at::Tensor memory = Ones({n + 2});
    for (const at::Tensor& out : {memory.narrow(0, 0, 1), memory.narrow(0, n + 1, 1)}) {
      const absl::Status status =
          ranks.ReduceScatterSum(out, memory.narrow(0, 1, n), {"right", 5})->Wait();
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(out.item<float>(), n);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, ReduceScatter, EveryGroup(), GroupName);

}  // namespace
}  // namespace muster::comm
