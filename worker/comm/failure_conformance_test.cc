// The behaviour of every Communicator with a missing peer, on every implementation and world size.
#include <atomic>
#include <barrier>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/comm/test_groups.h"

namespace muster::comm {
namespace {

class FailureConformance : public testing::TestWithParam<std::tuple<Implementation, int>> {
 protected:
  Implementation implementation() const { return std::get<0>(GetParam()); }
  int world_size() const { return std::get<1>(GetParam()); }
};

void ExpectNames(const absl::Status& status, int rank, const std::string& operation,
                 const std::string& peer) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  const std::string expected = "rank " + std::to_string(rank) + ": " + operation + ": " + peer;
  EXPECT_EQ(std::string(status.message()).rfind(expected, 0), 0)
      << status << "\nexpected: " << expected;
}

// One operation of every kind, with its name in errors; large, so that a peer can leave meanwhile.
struct Kind {
  const char* name;
  std::function<std::unique_ptr<Work>(Communicator& ranks, OpLabel label)> issue;
};

const Kind kKinds[] = {
    {"all_gather",
     [](Communicator& ranks, OpLabel label) {
       return ranks.AllGather(at::empty({100000 * ranks.world_size()}), at::ones({100000}), label);
     }},
    {"all_reduce", [](Communicator& ranks,
                      OpLabel label) { return ranks.AllReduceSum(at::ones({100000}), label); }},
    {"reduce_scatter",
     [](Communicator& ranks, OpLabel label) {
       return ranks.ReduceScatterSum(at::empty({100000}), at::ones({100000 * ranks.world_size()}),
                                     label);
     }},
    {"reduce_scatter",
     [](Communicator& ranks, OpLabel label) {
       return ranks.ReduceScatterSum(at::empty({100000}),
                                     at::ones({100000 * ranks.world_size()}, at::kBFloat16), label);
     }},
    {"all_to_all",
     [](Communicator& ranks, OpLabel label) {
       const int n = ranks.world_size();
       const std::vector<int64_t> sizes(n, 100000);
       return ranks.AllToAll(at::empty({100000 * n}), sizes, at::ones({100000 * n}), sizes, label);
     }},
    {"broadcast", [](Communicator& ranks,
                     OpLabel label) { return ranks.Broadcast(at::ones({100000}), 0, label); }},
};

TEST_P(FailureConformance, EveryKindOfOperationFailsByNameWhenAPeerLeaves) {
  if (world_size() == 1) GTEST_SKIP() << "no peers";
  for (const Kind& kind : kKinds) {
    std::barrier all_done(world_size());
    RunRanks(implementation(), world_size(), [&](std::unique_ptr<Communicator> ranks) {
      const int rank = ranks->rank();
      const absl::Status before = kind.issue(*ranks, {"before", 1})->Wait();
      EXPECT_TRUE(before.ok()) << before;
      all_done.arrive_and_wait();
      if (rank == 0) return;
      const auto first = kind.issue(*ranks, {"missed", 17});
      const auto second = kind.issue(*ranks, {"missed", 18});
      ExpectNames(second->Wait(), rank, std::string(kind.name) + " 'missed' at step 18",
                  "rank 0 is gone");
      ExpectNames(first->Wait(), rank, std::string(kind.name) + " 'missed' at step 17",
                  "rank 0 is gone");
    });
  }
}

TEST_P(FailureConformance, EveryKindOfOperationInFlightFailsWithThePeersCause) {
  if (world_size() == 1) GTEST_SKIP() << "no peers";
  for (const Kind& kind : kKinds) {
    std::latch all_issued(world_size() - 1);
    RunRanks(implementation(), world_size(), [&](std::unique_ptr<Communicator> ranks) {
      const int rank = ranks->rank();
      if (rank == 0) {
        all_issued.wait();
        return ranks->Abort(absl::DataLossError("loss is NaN"));
      }
      const auto work = kind.issue(*ranks, {"cut off", 1});
      all_issued.count_down();
      ExpectNames(work->Wait(), rank, std::string(kind.name) + " 'cut off' at step 1",
                  "rank 0 aborted: loss is NaN");
    });
  }
}

TEST_P(FailureConformance, ARankThatLeavesEarlyFailsTheOperationsItIsMissedIn) {
  for (int victim : {0, world_size() - 1}) {
    // No rank leaves before all ranks have done the first operation.
    std::barrier all_done(world_size());
    RunRanks(implementation(), world_size(), [&](std::unique_ptr<Communicator> ranks) {
      const int rank = ranks->rank();
      at::Tensor flat = at::ones({1000});
      const absl::Status before = ranks->AllReduceSum(flat, {"before", 1})->Wait();
      EXPECT_TRUE(before.ok()) << before;
      all_done.arrive_and_wait();
      if (rank == victim) return;
      at::Tensor a = at::ones({100000}), b = at::ones({3}), c = at::empty({world_size()});
      auto first = ranks->AllReduceSum(a, {"bucket 3", 17});
      auto second = ranks->AllGather(c, at::ones({1}), {"roll call", 18});
      const std::string peer = "rank " + std::to_string(victim) + " is gone";
      ExpectNames(second->Wait(), rank, "all_gather 'roll call' at step 18", peer);
      ExpectNames(first->Wait(), rank, "all_reduce 'bucket 3' at step 17", peer);
      // A communicator that has failed cannot be used again.
      ExpectNames(ranks->AllReduceSum(b, {"later", 19})->Wait(), rank,
                  "all_reduce 'later' at step 19", peer);
      ExpectNames(ranks->Broadcast(b, rank, {"later", 20})->Wait(), rank,
                  "broadcast 'later' at step 20", peer);
    });
  }
}

TEST_P(FailureConformance, ACleanEndFailsNobodyHoweverUnevenly) {
  // Ranks leave as soon as their own part is done, while others still wait.
  for (int round = 0; round < 8; ++round) {
    RunRanks(implementation(), world_size(), [&](std::unique_ptr<Communicator> ranks) {
      at::Tensor flat = at::ones({50000 + 1000 * round});
      const absl::Status status = ranks->AllReduceSum(flat, {"last", round})->Wait();
      EXPECT_TRUE(status.ok()) << status;
      at::Tensor two = at::ones({20000});
      const absl::Status broadcast = ranks->Broadcast(two, 0, {"last", round})->Wait();
      EXPECT_TRUE(broadcast.ok()) << broadcast;
    });
  }
}

TEST_P(FailureConformance, AbortFailsThisRanksOperationsWithItsOwnCause) {
  std::promise<void> aborted_promise;
  auto aborted = aborted_promise.get_future().share();
  RunRanks(implementation(), world_size(), [&](std::unique_ptr<Communicator> ranks) {
    const int rank = ranks->rank();
    at::Tensor flat = at::ones({1000});
    if (rank > 0) {
      aborted.wait();
      ExpectNames(ranks->AllReduceSum(flat, {"late", 2})->Wait(), rank,
                  "all_reduce 'late' at step 2", "rank 0 aborted: loss is NaN");
      return;
    }
    std::vector<std::unique_ptr<Work>> works;
    if (world_size() > 1) works.push_back(ranks->AllReduceSum(flat, {"stuck", 2}));
    ranks->Abort(absl::DataLossError("loss is NaN"));
    ranks->Abort(absl::InternalError("a later cause"));
    works.push_back(ranks->AllReduceSum(flat, {"stuck", 2}));
    for (auto& work : works) {
      const absl::Status status = work->Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_EQ(std::string(status.message()), "rank 0: all_reduce 'stuck' at step 2: loss is NaN");
    }
    aborted_promise.set_value();
    works.clear();
  });
}

TEST_P(FailureConformance, AbortFailsThePeersOperationsInFlight) {
  if (world_size() == 1) GTEST_SKIP() << "no peers";
  std::atomic<int> issued{0};
  std::promise<void> all_issued;
  auto all = all_issued.get_future().share();
  RunRanks(implementation(), world_size(), [&](std::unique_ptr<Communicator> ranks) {
    const int rank = ranks->rank();
    if (rank == 0) {
      all.wait();
      return ranks->Abort(absl::DataLossError("loss is NaN"));
    }
    at::Tensor flat = at::ones({1000});
    auto work = ranks->AllReduceSum(flat, {"sum", 1});
    if (++issued == world_size() - 1) all_issued.set_value();
    ExpectNames(work->Wait(), rank, "all_reduce 'sum' at step 1", "rank 0 aborted: loss is NaN");
  });
}

TEST_P(FailureConformance, DestroyingAfterAFailureDoesNotHang) {
  if (world_size() == 1) GTEST_SKIP() << "nobody to lose";
  RunRanks(implementation(), world_size(), [&](std::unique_ptr<Communicator> ranks) {
    if (ranks->rank() == 0) return;
    at::Tensor flat = at::ones({1 << 20});
    auto abandoned = ranks->AllReduceSum(flat, {"abandoned", 1});
    abandoned.reset();
    EXPECT_FALSE(ranks->AllReduceSum(flat, {"later", 2})->Wait().ok());
  });
}

TEST_P(FailureConformance, ASilentPeerIsNamedWhenTheTimeoutEnds) {
  if (implementation() != Implementation::kGloo || world_size() == 1) {
    GTEST_SKIP() << "here only Gloo has a timeout";
  }
  std::atomic<int> failed{0};
  std::promise<void> all_failed;
  auto all = all_failed.get_future().share();
  std::barrier all_there(world_size());
  RunRanks(
      implementation(), world_size(),
      [&](std::unique_ptr<Communicator> ranks) {
        all_there.arrive_and_wait();
        if (ranks->rank() == world_size() - 1) return all.wait();  // alive, but silent
        at::Tensor flat = at::ones({100000});
        const absl::Status status = ranks->AllReduceSum(flat, {"sum", 5})->Wait();
        EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
        EXPECT_NE(std::string(status.message())
                      .find("rank " + std::to_string(world_size() - 1) + " did not take part"),
                  std::string::npos)
            << status;
        if (++failed == world_size() - 1) all_failed.set_value();
      },
      std::chrono::seconds(2));
}

INSTANTIATE_TEST_SUITE_P(All, FailureConformance,
                         testing::Combine(testing::Values(Implementation::kLocal,
                                                          Implementation::kGloo,
                                                          Implementation::kStaged),
                                          testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace muster::comm
