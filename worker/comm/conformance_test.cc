// The behaviour of every Communicator without failures, on every implementation and world size.
// Reduce-scatter and all-to-all have files of their own.
#include "worker/comm/conformance.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"

namespace muster::comm {
namespace {

class Sums : public Conformance {
 protected:
  template <typename T>
  void CheckSums(double divide_by) {
    Run([&](Communicator& ranks) {
      int64_t step = 0;
      for (int64_t elements : {0, 1, 15, 16, 17, 63, 1000, 4099, 300001}) {
        at::Tensor flat = ToTensor(Contribution<T>(ranks.rank(), elements, step));
        const absl::Status status = ranks.AllReduceSum(flat, {"sum", step}, divide_by)->Wait();
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(
            SameBits(flat, SerialSum<T>(world_size(), elements, step, static_cast<T>(divide_by))))
            << elements << " elements";
        ++step;
      }
    });
  }
};

TEST_P(Conformance, RanksKnowWhoTheyAre) {
  std::atomic<int> sum{0};
  Run([&](Communicator& ranks) {
    EXPECT_EQ(ranks.world_size(), world_size());
    sum += 1 << (8 * ranks.rank());
  });
  EXPECT_EQ(sum, world_size() == 1   ? 0x1
                 : world_size() == 2 ? 0x101
                 : world_size() == 3 ? 0x10101
                                     : 0x1010101);
}

TEST_P(Sums, SumsAreInRankOrderBitwiseFloat32) { CheckSums<float>(1.0); }
TEST_P(Sums, SumsAreInRankOrderBitwiseFloat64) { CheckSums<double>(1.0); }
TEST_P(Sums, SumsAreExactInt64) { CheckSums<int64_t>(1.0); }
TEST_P(Sums, SumsAreDividedOnceFloat32) { CheckSums<float>(7.0); }
TEST_P(Sums, SumsAreDividedOnceFloat64) { CheckSums<double>(3.0); }

TEST_P(Conformance, SumsOfTheseNumbersDependOnTheOrder) {
  // The proof that the tests above can fail: another order gives other bits.
  if (world_size() < 3) GTEST_SKIP() << "two numbers have one sum";
  const auto forward = SerialSum<float>(world_size(), 1000, 1, 1.0f);
  std::vector<float> backward = Contribution<float>(world_size() - 1, 1000, 1);
  for (int rank = world_size() - 2; rank >= 0; --rank) {
    const auto next = Contribution<float>(rank, 1000, 1);
    for (int i = 0; i < 1000; ++i) backward[i] += next[i];
  }
  EXPECT_NE(forward, backward);
}

TEST_P(Conformance, AllGatherIsInRankOrderForAnyTypeAndLength) {
  Run([&](Communicator& ranks) {
    int64_t step = 0;
    for (auto type : {at::kByte, at::kFloat, at::kDouble, at::kLong, at::kBFloat16}) {
      for (int64_t elements : {0, 1, 13, 4096, 100003}) {
        const auto options = at::TensorOptions(type);
        at::Tensor in = Full({elements}, 10 + ranks.rank(), options);
        at::Tensor out = Full({world_size() * elements}, 99, options);
        const absl::Status status = ranks.AllGather(out, in, {"gather", step++})->Wait();
        ASSERT_TRUE(status.ok()) << status;
        for (int rank = 0; rank < world_size(); ++rank) {
          EXPECT_TRUE(out.narrow(0, rank * elements, elements)
                          .equal(Full({elements}, 10 + rank, options)));
        }
      }
    }
  });
}

TEST_P(Conformance, AllGatherMayReadItsInputFromItsOutput) {
  Run([&](Communicator& ranks) {
    at::Tensor out = Full({world_size() * 5}, 1.0f);
    at::Tensor in = out.narrow(0, ranks.rank() * 5, 5);
    in.fill_(ranks.rank());
    const absl::Status status = ranks.AllGather(out, in, {"gather", 0})->Wait();
    ASSERT_TRUE(status.ok()) << status;
    for (int i = 0; i < world_size() * 5; ++i) EXPECT_EQ(out[i].item<float>(), i / 5);
  });
}

TEST_P(Conformance, BroadcastGivesEveryRankTheRootsBits) {
  Run([&](Communicator& ranks) {
    int64_t step = 0;
    for (int root = 0; root < world_size(); ++root) {
      for (int64_t elements : {0, 1, 17, 50000}) {
        at::Tensor flat = ToTensor(Contribution<double>(ranks.rank(), elements, root));
        const absl::Status status = ranks.Broadcast(flat, root, {"broadcast", step++})->Wait();
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(SameBits(flat, Contribution<double>(root, elements, root)));
      }
    }
  });
}

TEST_P(Conformance, ManyOperationsInFlightMayBeWaitedForInAnyOrder) {
  Run([&](Communicator& ranks) {
    constexpr int kOperations = 30;
    std::vector<at::Tensor> sums, parts, gathered, exchanged;
    std::vector<std::unique_ptr<Work>> works;
    const std::vector<int64_t> one_each(world_size(), 1);
    for (int i = 0; i < kOperations; ++i) {
      sums.push_back(ToTensor(Contribution<float>(ranks.rank(), 777 * i, i)));
      works.push_back(ranks.AllReduceSum(sums[i], {"sum", i}, 5.0));
      parts.push_back(Empty({555 * i}));
      works.push_back(ranks.ReduceScatterSum(
          parts[i], ToTensor(Contribution<float>(ranks.rank(), world_size() * 555 * i, 100 + i)),
          {"reduce-scatter", i}, 7.0));
      gathered.push_back(Empty({world_size()}));
      works.push_back(
          ranks.AllGather(gathered[i], Full({1}, 100.0f * i + ranks.rank()), {"gather", i}));
      exchanged.push_back(Empty({world_size()}));
      works.push_back(ranks.AllToAll(exchanged[i], one_each,
                                     Full({world_size()}, 10.0f * i + ranks.rank()), one_each,
                                     {"all-to-all", i}));
    }
    std::mt19937 random(ranks.rank());
    std::vector<int> order(works.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (int i : order) {
      const absl::Status status = works[i]->Wait();
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(works[i]->Wait().ok()) << "the second time";
    }
    for (int i = 0; i < kOperations; ++i) {
      EXPECT_TRUE(SameBits(sums[i], SerialSum<float>(world_size(), 777 * i, i, 5.0f)));
      const auto all = SerialSum<float>(world_size(), world_size() * 555 * i, 100 + i, 7.0f);
      EXPECT_TRUE(SameBits(parts[i], Part(all, ranks.rank(), world_size())));
      for (int rank = 0; rank < world_size(); ++rank) {
        EXPECT_EQ(gathered[i][rank].item<float>(), 100.0f * i + rank);
        EXPECT_EQ(exchanged[i][rank].item<float>(), 10.0f * i + rank);
      }
    }
  });
}

TEST_P(Conformance, ResultsDoNotDependOnWhereABufferBegins) {
  Run([&](Communicator& ranks) {
    const auto values = Contribution<float>(ranks.rank(), 5000, 3);
    at::Tensor whole = ToTensor(values);
    at::Tensor first = whole.narrow(0, 0, 1234).clone();
    at::Tensor second = whole.narrow(0, 1234, 5000 - 1234).clone();
    auto a = ranks.AllReduceSum(whole, {"whole", 0});
    auto b = ranks.AllReduceSum(first, {"first", 0});
    auto c = ranks.AllReduceSum(second, {"second", 0});
    for (Work* work : {a.get(), b.get(), c.get()}) ASSERT_TRUE(work->Wait().ok());
    EXPECT_TRUE(whole.narrow(0, 0, 1234).equal(first));
    EXPECT_TRUE(whole.narrow(0, 1234, 5000 - 1234).equal(second));
  });
}

TEST_P(Conformance, AWorkThatIsDestroyedWasWaitedFor) {
  Run([&](Communicator& ranks) {
    at::Tensor flat = Ones({10000});
    { auto work = ranks.AllReduceSum(flat, {"sum", 0}); }
    EXPECT_EQ(flat.sum().item<float>(), 10000.0f * world_size());
  });
}

TEST_P(Conformance, WrongCallsAreRefusedByNameAndTheCommunicatorStaysUsable) {
  Run([&](Communicator& ranks) {
    const auto refused = [&](std::unique_ptr<Work> work, const char* text) {
      ExpectRefused(ranks, std::move(work), text);
    };
    const OpLabel label{"wrong", 4};
    refused(ranks.AllGather(Empty({world_size() * 3 + 1}), Empty({3}), label),
            "all_gather 'wrong' at step 4: the output holds");
    refused(ranks.AllGather(Empty({world_size()}, at::kDouble), Empty({1}), label),
            "expected");
    refused(ranks.AllReduceSum(Empty({4}, at::kBFloat16), label), "cannot sum BFloat16");
    refused(ranks.AllReduceSum(Empty({4}, at::kLong), label, 2.0), "cannot be divided");
    refused(ranks.AllReduceSum(Empty({4}), label, 0.0), "divisor");
    refused(ranks.AllReduceSum(Empty({4}), label, INFINITY), "divisor");
    refused(ranks.AllReduceSum(Empty({4}, at::TensorOptions(at::kMeta)), label),
            "is on meta, not on ");
    refused(ranks.AllReduceSum(Empty({4, 4}).t(), label), "not contiguous");
    refused(ranks.AllReduceSum(at::Tensor(), label), "undefined");
    refused(ranks.Broadcast(Empty({4}), world_size(), label), "not a rank of");
    refused(ranks.Broadcast(Empty({4}), -1, label), "not a rank of");
    at::Tensor flat = Ones({3});
    EXPECT_TRUE(ranks.AllReduceSum(flat, {"right", 5})->Wait().ok());
    EXPECT_EQ(flat[0].item<float>(), world_size());
  });
}

TEST_P(Conformance, TensorsThatRequireGradAreBroadcastInPlace) {
  Run([&](Communicator& ranks) {
    at::Tensor flat = Full({7}, ranks.rank() + 1.0f).requires_grad_(true);
    ASSERT_TRUE(ranks.Broadcast(flat, 0, {"parameters", 0})->Wait().ok());
    EXPECT_EQ(flat.detach()[6].item<float>(), 1.0f);
  });
}

TEST_P(Conformance, TensorsAreReleasedOnceTheOperationIsDone) {
  Run([&](Communicator& ranks) {
    at::Tensor flat = Ones({1000}), in = Ones({7}), out = Empty({7 * world_size()});
    const auto sum = ranks.AllReduceSum(flat, {"sum", 1});
    const auto gather = ranks.AllGather(out, in, {"gather", 1});
    ASSERT_TRUE(sum->Wait().ok() && gather->Wait().ok());
    for (const at::Tensor& tensor : {std::cref(flat), std::cref(in), std::cref(out)}) {
      EXPECT_EQ(tensor.use_count(), 1);
    }
  });
}

TEST_P(Conformance, BytesSentAreThoseOfADirectExchange) {
  Run([&](Communicator& ranks) {
    const int others = world_size() - 1;
    int64_t before = 0;
    const auto sent_by = [&](std::unique_ptr<Work> work) {
      EXPECT_TRUE(work->Wait().ok());
      return ranks.bytes_sent() - std::exchange(before, ranks.bytes_sent());
    };
    EXPECT_EQ(ranks.bytes_sent(), 0);
    const int64_t even = 16 * world_size() * 10;
    // The same as in a ring: 2 (W - 1) / W of the buffer.
    EXPECT_EQ(sent_by(ranks.AllReduceSum(Ones({even}), {"sum", 1})), 2 * others * 16 * 10 * 4);
    // One slice of 16 for rank 0, which sends the sum back; the other slices are empty.
    EXPECT_EQ(sent_by(ranks.AllReduceSum(Ones({16}, at::kDouble), {"sum", 2})),
              ranks.rank() == 0 ? others * 16 * 8 : 16 * 8);
    EXPECT_EQ(sent_by(ranks.AllGather(Empty({world_size() * 5}, at::kLong),
                                      Ones({5}, at::kLong), {"gather", 3})),
              others * 5 * 8);
    EXPECT_EQ(
        sent_by(ranks.Broadcast(Ones({9}, at::kByte), world_size() - 1, {"broadcast", 4})),
        ranks.rank() == world_size() - 1 ? others * 9 : 0);
    EXPECT_FALSE(ranks.AllReduceSum(Ones({4}, at::kByte), {"wrong", 5})->Wait().ok());
    EXPECT_EQ(ranks.bytes_sent(), before);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Sums, EveryGroup(), GroupName);
INSTANTIATE_TEST_SUITE_P(All, Conformance, EveryGroup(), GroupName);

}  // namespace
}  // namespace muster::comm
