// All-to-all, on every implementation and world size.
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
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

using Sizes = std::vector<int64_t>;
using Table = std::vector<Sizes>;  // [from][to]

// Returns uneven sizes with many zeros, the same on all ranks.
Table RandomTable(int world_size, int64_t largest, int seed) {
  std::mt19937_64 random(seed);
  Table table(world_size, Sizes(world_size));
  for (Sizes& sizes : table) {
    for (int64_t& size : sizes) size = random() % 3 == 0 ? 0 : random() % (largest + 1);
  }
  return table;
}

// Returns the elements that `from` sends to `to`.
std::vector<int64_t> Message(int from, int to, int64_t elements, int seed) {
  return Contribution<int64_t>(10 * from + to, elements, seed);
}

class AllToAll : public Conformance {
 protected:
  struct Call {
    Sizes in_sizes, out_sizes;
    std::vector<int64_t> sent, expected;
    at::Tensor in, out;
  };

  Call MakeCall(const Table& table, int rank, int seed) {
    Call call;
    call.in_sizes = table[rank];
    for (int peer = 0; peer < world_size(); ++peer) {
      call.out_sizes.push_back(table[peer][rank]);
      const auto sent = Message(rank, peer, table[rank][peer], seed);
      call.sent.insert(call.sent.end(), sent.begin(), sent.end());
      const auto received = Message(peer, rank, table[peer][rank], seed);
      call.expected.insert(call.expected.end(), received.begin(), received.end());
    }
    call.in = ToTensor(call.sent);
    call.out = Full({static_cast<int64_t>(call.expected.size())}, 99, at::kLong);
    return call;
  }

  std::unique_ptr<Work> Issue(Communicator& ranks, const Call& call, int64_t step) {
    return ranks.AllToAll(call.out, call.out_sizes, call.in, call.in_sizes, {"pieces", step});
  }

  void Check(const Table& table, int seed) {
    Run([&](Communicator& ranks) {
      const Call call = MakeCall(table, ranks.rank(), seed);
      const absl::Status status = Issue(ranks, call, seed)->Wait();
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(SameBits(call.out, call.expected));
      EXPECT_TRUE(SameBits(call.in, call.sent)) << "changed the input";
      EXPECT_EQ(ranks.bytes_sent(),
                8 * (static_cast<int64_t>(call.sent.size()) - table[ranks.rank()][ranks.rank()]));
    });
  }
};

TEST_P(AllToAll, NothingForAnybody) { Check(Table(world_size(), Sizes(world_size(), 0)), 1); }

TEST_P(AllToAll, OneRankSendsEverythingToAnother) {
  Table table(world_size(), Sizes(world_size(), 0));
  table[0][world_size() - 1] = 100003;
  Check(table, 2);
}

TEST_P(AllToAll, EveryRankOnlyToItself) {
  Table table(world_size(), Sizes(world_size(), 0));
  for (int rank = 0; rank < world_size(); ++rank) table[rank][rank] = 1000 + rank;
  Check(table, 3);
}

TEST_P(AllToAll, UnevenSizesManyInFlightWaitedForInAnyOrder) {
  Run([&](Communicator& ranks) {
    std::vector<Call> calls;
    std::vector<std::unique_ptr<Work>> works;
    for (int64_t largest : {1, 2, 17, 1000, 50000}) {
      for (int i = 0; i < 6; ++i) {
        const int seed = calls.size();
        calls.push_back(MakeCall(RandomTable(world_size(), largest, seed), ranks.rank(), seed));
        works.push_back(Issue(ranks, calls.back(), seed));
      }
    }
    std::vector<int> order(works.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(ranks.rank()));
    for (int i : order) {
      const absl::Status status = works[i]->Wait();
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(SameBits(calls[i].out, calls[i].expected)) << i;
      EXPECT_TRUE(SameBits(calls[i].in, calls[i].sent)) << i;
    }
  });
}

TEST_P(AllToAll, AnyType) {
  Run([&](Communicator& ranks) {
    int64_t step = 0;
    for (auto type :
         {at::kByte, at::kBool, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexDouble}) {
      const int n = world_size();
      const at::Tensor in = Full({3 * n}, ranks.rank() % 2, type), out = Full({3 * n}, 1, type);
      ASSERT_TRUE(ranks.AllToAll(out, Sizes(n, 3), in, Sizes(n, 3), {"any", step++})->Wait().ok());
      for (int peer = 0; peer < n; ++peer) {
        EXPECT_TRUE(out.narrow(0, 3 * peer, 3).equal(Full({3}, peer % 2, type)));
      }
    }
  });
}

TEST_P(AllToAll, TensorsAreReleasedOnceItIsDone) {
  Run([&](Communicator& ranks) {
    const Sizes one_each(world_size(), 1);
    const at::Tensor in = Ones({world_size()}), out = Empty({world_size()});
    const auto work = ranks.AllToAll(out, one_each, in, one_each, {"pieces", 1});
    ASSERT_TRUE(work->Wait().ok());
    EXPECT_EQ(in.use_count(), 1);
    EXPECT_EQ(out.use_count(), 1);
  });
}

TEST_P(AllToAll, WrongCallsAreRefusedByNameAndTheCommunicatorStaysUsable) {
  Run([&](Communicator& ranks) {
    const int n = world_size();
    const Sizes two(n, 2);
    const at::Tensor in = Ones({2 * n}), out = Empty({2 * n});
    const auto refused = [&](const at::Tensor& to, const Sizes& out_sizes, const at::Tensor& from,
                             const Sizes& in_sizes, const std::string& text) {
      ExpectRefused(ranks, ranks.AllToAll(to, out_sizes, from, in_sizes, {"wrong", 4}), text);
    };
    const std::string elements = std::to_string(2 * n);
    const auto changed = [&](int64_t first) {
      Sizes sizes = two;
      sizes[0] = first;
      return sizes;
    };
    refused(out, changed(1), in, two,
            "all_to_all 'wrong' at step 4: the output's sizes add up to " +
                std::to_string(2 * n - 1) + ", but the output holds " + elements + " Float");
    refused(out, two, in, changed(0),
            "the input's sizes add up to " + std::to_string(2 * n - 2) + ", but the input holds " +
                elements);
    refused(out, two, in, changed(-1), "the input's size for rank 0 is -1");
    refused(out, changed(INT64_MAX), in, two,
            "the output's size for rank 0 is 9223372036854775807");
    refused(out, Sizes(n + 1, 2), in, two,
            "the output has " + std::to_string(n + 1) + " sizes, expected one for each");
    refused(out, two, in, {}, "the input has 0 sizes");
    refused(Empty({2 * n}, at::kDouble), two, in, two, "the output is Double, the input Float");
    refused(at::Tensor(), two, in, two, "the output is undefined");
    refused(out, two, at::Tensor(), two, "the input is undefined");
    const at::Tensor columns = Empty({n, 4}).narrow(1, 0, 2);
    if (n > 1) refused(columns, two, in, two, "the output is not contiguous");
    refused(in, two, in, two, "the output overlaps the input");
    if (n > 1) {
      Sizes other = two;
      other[ranks.rank()] = 1;
      other[(ranks.rank() + 1) % n] = 3;
      refused(out, other, in, two, "it sends 2 elements to itself, but expects 1");
    }
    EXPECT_TRUE(ranks.AllToAll(out, two, in, two, {"right", 5})->Wait().ok());
    EXPECT_TRUE(out.equal(in));
  });
}

INSTANTIATE_TEST_SUITE_P(All, AllToAll, EveryGroup(), GroupName);

}  // namespace
}  // namespace muster::comm
