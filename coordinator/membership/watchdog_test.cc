#include "coordinator/membership/watchdog.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster::membership {
namespace {

constexpr absl::Duration kLease = absl::Seconds(1);
constexpr ProgressLimits kProgressLimits{.no_progress = absl::Seconds(10),
                                         .startup = absl::Seconds(60)};
const absl::Time kStart = absl::FromUnixSeconds(1000);

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

// A rank with the contents of its last heartbeat.
struct Rank {
  Watched watched;
  Collectives collectives;
};

// Ranks that have begun and ended this many collectives, and last made progress at these times.
class Job {
 public:
  Rank& Add(double moved, uint64_t begun, uint64_t ended,
            const std::string& name = "all_reduce 'b'") {
    Rank& rank = ranks_.emplace_back();
    rank.watched = {.rank = static_cast<uint32_t>(ranks_.size() - 1),
                    .session_started = true,
                    .limits = kProgressLimits,
                    .moved = At(moved),
                    .step = 7};
    rank.collectives = {.begun = begun, .ended = ended};
    for (uint64_t number = begun > 3 ? begun - 3 : 1; number <= begun; ++number) {
      rank.collectives.newest.push_back(
          {number,
           number == begun ? absl::StrCat(name, " step ", number) : absl::StrCat("step ", number),
           number <= ended});
    }
    return rank;
  }
  std::optional<Hang> Look(double now) {
    std::vector<Watched> watched;
    for (Rank& rank : ranks_) {
      rank.watched.collectives = &rank.collectives;
      watched.push_back(rank.watched);
    }
    return FindHang(watched, kLease, At(now));
  }
  std::deque<Rank>& ranks() { return ranks_; }

 private:
  std::deque<Rank> ranks_;
};

TEST(Watchdog, AJobThatMovesDoesNotHang) {
  Job job;
  job.Add(0, 5, 5);
  job.Add(0, 6, 5);
  EXPECT_FALSE(job.Look(9.9).has_value());
}

TEST(Watchdog, NobodyHangsWhileOthersWaitForASlowRankThatMoves) {
  Job job;
  job.Add(0, 6, 5, "all_gather 'roll call'");
  Rank& slow = job.Add(0, 5, 5);
  job.Add(0, 6, 5, "all_gather 'roll call'");
  for (double now = 0; now < 100000; now += 5) {
    slow.watched.moved = At(now);
    ASSERT_FALSE(job.Look(now + 5).has_value()) << now;
  }
}

TEST(Watchdog, TheRankThatIsBehindIsAtFaultWhicheverStoppedFirst) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    Job job;
    const uint32_t world = 2 + random() % 7;
    const uint32_t hung = random() % world;
    const uint64_t done = 1 + random() % 1000;
    for (uint32_t rank = 0; rank < world; ++rank) {
      const double moved = 0.2 * static_cast<double>(random() % 6);
      // The waiting ranks have begun collectives that the hung rank has not begun. Several may be
      // in progress.
      if (rank == hung) {
        job.Add(moved, done, done - random() % 2);
      } else {
        job.Add(moved, done + 3, done);
      }
    }
    double now = 0;
    while (!job.Look(now).has_value()) ASSERT_LT(now += 0.2, 12);
    const Hang hang = *job.Look(now);
    EXPECT_EQ(hang.rank, hung);
    EXPECT_GE(At(now), job.ranks()[hung].watched.moved + kProgressLimits.no_progress);
    EXPECT_TRUE(absl::StartsWith(hang.reason, "made no progress for 10s at step 7")) << hang.reason;
  }
}

TEST(Watchdog, TheReasonSaysWhatTheRankDidAndWhoIsAhead) {
  Job job;
  job.Add(0, 43, 40, "all_gather 'roll call'");
  job.Add(0, 40, 40).watched.progress = "training";
  const auto hang = job.Look(10);
  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(hang->reason,
            "made no progress for 10s at step 7 (last: training); it is behind: it has begun 40 "
            "collectives "
            "and ended 40, rank 0 has begun 43 collectives and ended 40");
  ASSERT_EQ(hang->collectives.size(), 6);
  EXPECT_EQ(hang->collectives[2], "rank 1: number 40, all_reduce 'b' step 40, ended");
  EXPECT_EQ(hang->collectives[5], "rank 0: number 43, all_gather 'roll call' step 43, not ended");
}

TEST(Watchdog, OneThatHangsInWorkOfItsOwnIsFoundAlthoughTheOthersMove) {
  Job job;
  job.Add(0, 5, 5);
  job.Add(9, 5, 5);
  job.Add(9, 8, 5);
  const auto hang = job.Look(10);
  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(hang->rank, 0);
}

TEST(Watchdog, AmongEqualRanksTheOneThatHasEndedTheFewestCollectivesIsAtFault) {
  Job job;
  job.Add(0, 5, 5);
  job.Add(1, 5, 4);
  EXPECT_EQ(job.Look(11)->rank, 1);
}

TEST(Watchdog, WaitingForARankThatStartsUpIsNoHang) {
  Job job;
  job.Add(0, 2, 1);
  Rank& loading = job.Add(0, 0, 0);
  loading.watched.session_started = false;
  EXPECT_FALSE(job.Look(59.9).has_value());
  const auto hang = job.Look(60);
  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(hang->rank, 1);
  EXPECT_TRUE(absl::StartsWith(hang->reason, "did not start: no progress for 1m")) << hang->reason;
}

// Sets the communicator of the last collective of `rank`, and its number in this communicator.
void Last(Rank& rank, uint32_t communicator, uint64_t number) {
  rank.collectives.newest.back().communicator = communicator;
  rank.collectives.newest.back().of_communicator = number;
}

TEST(Watchdog, DifferentCollectivesWithOneNumberOfACommunicatorAreNamedAtOnceAndForGood) {
  Job job;
  Last(job.Add(0, 17, 16, "all_gather 'unit 3'"), 2, 9);
  Last(job.Add(0, 18, 17, "all_gather 'unit 2'"), 2, 9);
  const auto hang = job.Look(0);
  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(hang->rank, 1);
  EXPECT_EQ(hang->reason,
            "has begun all_gather 'unit 2' step 18, rank 0 has begun all_gather 'unit 3' step 17 "
            "instead: the ranks call different collectives; with fsdp all ranks must call the same "
            "units in the same order");
  EXPECT_TRUE(hang->permanent);
  EXPECT_EQ(hang->collectives.size(), 6);
}

TEST(Watchdog, DifferentCollectivesOfDifferentNumbersOrCommunicatorsAreNoMismatch) {
  Job job;
  Last(job.Add(0, 17, 16, "all_gather 'unit 3'"), 2, 9);
  Last(job.Add(0, 17, 16, "all_gather 'unit 4'"), 2, 10);
  Last(job.Add(0, 17, 16, "all_gather 'roll call'"), 0, 9);
  EXPECT_FALSE(job.Look(9).has_value());
}

TEST(Watchdog, RanksThatWaitForEachOtherInDifferentCommunicatorsAreNamedAfterTwoLeases) {
  Job job;
  const auto add = [&](double moved, const std::string& name, uint32_t communicator) {
    Rank& rank = job.Add(moved, 1, 0, name);
    rank.collectives.newest.resize(1);
    Last(rank, communicator, 1);
  };
  add(0, "all_gather 'unit 3'", 2);
  add(0.5, "reduce_scatter 'unit 2'", 1);
  EXPECT_FALSE(job.Look(2.4).has_value());
  const auto hang = job.Look(2.5);
  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(hang->rank, 1);
  EXPECT_EQ(hang->reason.substr(0, hang->reason.find(':')),
            "has begun reduce_scatter 'unit 2' step 1, rank 0 has begun all_gather 'unit 3' step 1 "
            "instead");
  EXPECT_TRUE(hang->permanent);
}

TEST(Watchdog, WhatHasNotEndedIsShownWhateverAnotherThreadHasBegunSince) {
  Job job;
  Rank& rank = job.Add(0, 9, 8);
  rank.collectives.newest = {
      {4, "bucket 0", true, 1, 1},        {5, "bucket 1", false, 1, 2},
      {6, "checkpoint plan", true, 3, 1}, {7, "checkpoint parts", true, 3, 2},
      {8, "hashes", true, 3, 3},          {9, "commit", true, 3, 4}};
  const auto hang = job.Look(1000);
  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(hang->collectives, (std::vector<std::string>{"rank 0: number 8, hashes, ended",
                                                         "rank 0: number 9, commit, ended",
                                                         "rank 0: number 5, bucket 1, not ended"}));
}

TEST(Watchdog, FilesThatAnotherThreadWritesAreNoMismatch) {
  Job job;
  for (const uint32_t communicator : {3, 1}) {
    Rank& rank = job.Add(0, 1, 0);
    rank.collectives.newest = {{1, "x", false, communicator, 1}};
  }
  EXPECT_FALSE(job.Look(9).has_value());
}

// An example is uneven inputs: a rank without input issues "loss terms" before its buckets.
TEST(Watchdog, AnotherOrderOfTheControlCommunicatorIsNoMismatchHoweverLongTheRanksStandStill) {
  Job job;
  Rank& joined = job.Add(0, 1, 0);
  joined.collectives.newest = {{1, "loss terms", false, 0, 1}};
  Rank& active = job.Add(0, 1, 0);
  active.collectives.newest = {{1, "bucket 0", false, 1, 1}};
  EXPECT_FALSE(job.Look(9).has_value());
}

TEST(Watchdog, AWorkerThatDoesNotTellCommunicatorsApartIsNotCompared) {
  Job job;
  job.Add(0, 17, 16, "all_gather 'unit 3'");
  job.Add(0, 17, 16, "reduce_scatter 'unit 2'");
  EXPECT_FALSE(job.Look(9).has_value());
}

TEST(Watchdog, WaitingInTheSameCollectiveIsNoMismatch) {
  Job job;
  Last(job.Add(0, 17, 16, "all_gather 'unit 3'"), 2, 9);
  Last(job.Add(0, 17, 16, "all_gather 'unit 3'"), 2, 9);
  EXPECT_FALSE(job.Look(9).has_value());
}

TEST(Watchdog, RanksThatMoveAreNotComparedAndNeitherIsWhatHasEnded) {
  Job job;
  job.Add(0, 17, 16, "all_gather 'unit 3'");
  job.Add(4, 17, 16, "all_gather 'unit 2'");
  EXPECT_FALSE(job.Look(5).has_value());
  Job ended;
  ended.Add(0, 17, 17, "all_gather 'unit 3'");
  ended.Add(0, 17, 16, "all_gather 'unit 2'");
  EXPECT_FALSE(ended.Look(5).has_value());
}

TEST(Watchdog, WorkersThatCountNoCollectivesAreJudgedEachByItself) {
  Job job;
  job.Add(1, 0, 0);
  job.Add(0, 0, 0).watched.progress = "validating";
  job.Add(9, 4, 4);
  EXPECT_FALSE(job.Look(9.9).has_value());
  const auto hang = job.Look(11);
  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(hang->rank, 1);
}

TEST(Watchdog, ASilentRankCountsNeitherAsHungNorAsMakingProgress) {
  Job job;
  job.Add(0, 8, 5);
  job.Add(0, 5, 5).watched.silent = true;
  EXPECT_FALSE(job.Look(1000).has_value());
}

TEST(Watchdog, AJobWithoutRanksDoesNotHang) { EXPECT_FALSE(Job().Look(1000).has_value()); }

}  // namespace
}  // namespace muster::membership
