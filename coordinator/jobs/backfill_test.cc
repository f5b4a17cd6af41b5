// Jobs that may start before the first job in line.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "coordinator/jobs/placement.h"

namespace muster::jobs {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);
absl::Time In(int64_t seconds) { return kNow + absl::Seconds(seconds); }

// Returns this many slot numbers.
std::vector<uint32_t> Numbers(uint32_t count, uint32_t first = 0) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Returns the jobs that are placed on a node of `slots` slots.
std::vector<std::string> Placed(uint32_t slots, const std::vector<PlacedJob>& running,
                                const std::vector<WaitingJob>& line) {
  Slots offered;
  offered.Offer("n", Numbers(slots));
  uint32_t used = 0;
  for (const PlacedJob& job : running) {
    for (uint32_t i = 0; i < job.slots; ++i) offered.Use({"n", used++});
  }
  std::vector<std::string> placed;
  for (const Decision& decision : PlaceJobs(line, offered, running, kNow)) {
    if (decision.placed.has_value()) placed.push_back(decision.id);
  }
  return placed;
}

using Ids = std::vector<std::string>;
WaitingJob Job(const std::string& id, uint64_t number, uint32_t world_size,
               absl::Duration limit = absl::InfiniteDuration()) {
  return {.id = id, .number = number, .world_size = world_size, .time_limit = limit};
}

TEST(Backfill, AJobThatWouldDelayTheFirstInLineWaits) {
  EXPECT_EQ(Placed(4, {{2}}, {Job("big", 1, 4), Job("small", 2, 1)}), Ids());
}

TEST(Backfill, AJobThatFitsTheNodesOfNoProtocolHoldsUpNobody) {
  Slots slots;
  slots.Offer("new", Numbers(4), 3);
  slots.Offer("old", Numbers(4), 2);
  const auto decisions = PlaceJobs({Job("both", 1, 8), Job("small", 2, 4)}, slots, {}, kNow);
  ASSERT_EQ(decisions.size(), 2);
  EXPECT_FALSE(decisions[0].placed.has_value());
  EXPECT_TRUE(decisions[1].placed.has_value());
}

TEST(Backfill, AReservationIsForNodesOfOneProtocol) {
  Slots slots;
  slots.Offer("new", Numbers(4), 3);
  slots.Offer("old", Numbers(4), 2);
  slots.Use({"new", 0});
  // The first job in line waits for the new node; no job waits for the old node.
  const auto decisions = PlaceJobs({Job("first", 1, 4), Job("second", 2, 3), Job("third", 3, 4)},
                                   slots, {{1, absl::InfiniteFuture(), 3}}, kNow);
  EXPECT_EQ(decisions[0].placed->front().node, "old");
  EXPECT_EQ(decisions[1].placed->front().node, "new");
  EXPECT_FALSE(decisions[2].placed.has_value());
}

TEST(Backfill, SlotsThatTheFirstInLineDoesNotNeedAreUsed) {
  // The running job's end makes 4 slots free, and 3 are needed.
  EXPECT_EQ(Placed(4, {{2}}, {Job("big", 1, 3), Job("a", 2, 1), Job("b", 3, 1)}), Ids{"a"});
}

TEST(Backfill, TheOrderInWhichTheRunningJobsEndMayDelayNobody) {
  // The first end of either job makes just as many slots free as the first job needs.
  EXPECT_EQ(Placed(4, {{1}, {1}}, {Job("big", 1, 3), Job("small", 2, 1)}), Ids());
}

TEST(Backfill, AShortJobRunsWhereTheReservationIsLater) {
  const std::vector<PlacedJob> running = {{2, In(60)}};
  EXPECT_EQ(Placed(4, running, {Job("big", 1, 4), Job("short", 2, 2, absl::Seconds(60))}),
            Ids{"short"});
  EXPECT_EQ(Placed(4, running, {Job("big", 1, 4), Job("long", 2, 2, absl::Seconds(61))}), Ids());
  EXPECT_EQ(Placed(4, running, {Job("big", 1, 4), Job("unknown", 2, 2)}), Ids());
}

TEST(Backfill, AnUnknownEndIsNotLaterThanAnyLimit) {
  EXPECT_EQ(Placed(4, {{2}}, {Job("big", 1, 4), Job("short", 2, 1, absl::Seconds(1))}), Ids());
}

TEST(Backfill, WhatIsPlacedInTheSamePassCountsAsRunning) {
  EXPECT_EQ(Placed(4, {},
                   {Job("a", 1, 2, absl::Seconds(60)), Job("big", 2, 4),
                    Job("short", 3, 2, absl::Seconds(60)), Job("long", 4, 1)}),
            (Ids{"a", "short"}));
}

TEST(Backfill, ManyShareWhatIsSpare) {
  EXPECT_EQ(
      Placed(8, {{4, In(60)}}, {Job("big", 1, 6), Job("a", 2, 1), Job("b", 3, 2), Job("c", 4, 1)}),
      (Ids{"a", "c"}));
}

// The start of each job when all jobs come at once, on one node. A job ends at any time up to its
// limit.
struct Course {
  std::map<std::string, absl::Time> starts;
};
struct Planned {
  WaitingJob job;
  absl::Duration runs;
};
Course CourseOf(uint32_t slots, std::vector<Planned> jobs, bool backfill) {
  Course course;
  struct Now {
    Planned planned;
    std::vector<Slot> slots;
    absl::Time end;
  };
  std::vector<Now> running;
  absl::Time now = kNow;
  while (course.starts.size() < jobs.size()) {
    Slots offered;
    offered.Offer("n", Numbers(slots));
    std::vector<PlacedJob> known;
    for (const Now& job : running) {
      for (const Slot& slot : job.slots) offered.Use(slot);
      known.push_back({static_cast<uint32_t>(job.slots.size()),
                       course.starts.at(job.planned.job.id) + job.planned.job.time_limit});
    }
    std::vector<WaitingJob> line;
    for (const Planned& planned : jobs) {
      if (!course.starts.contains(planned.job.id)) line.push_back(planned.job);
    }
    bool blocked = false;
    for (const Decision& decision : PlaceJobs(line, offered, known, now)) {
      blocked = blocked || !decision.placed.has_value();
      if (!decision.placed.has_value() || (blocked && !backfill)) continue;
      const auto planned = std::find_if(
          jobs.begin(), jobs.end(), [&](const Planned& job) { return job.job.id == decision.id; });
      course.starts[decision.id] = now;
      running.push_back({*planned, *decision.placed, now + planned->runs});
    }
    if (course.starts.size() == jobs.size()) break;
    now = std::min_element(running.begin(), running.end(), [](const Now& a, const Now& b) {
            return a.end < b.end;
          })->end;
    std::erase_if(running, [&](const Now& job) { return job.end <= now; });
  }
  return course;
}

std::vector<Planned> RandomJobs(std::mt19937* random, uint32_t slots, bool limits) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(*random);
  };
  std::vector<Planned> jobs;
  for (int i = 0; i < 8; ++i) {
    const absl::Duration runs = absl::Seconds(pick(1, 30));
    const bool limited = limits && pick(0, 3) > 0;
    jobs.push_back({Job(std::string(1, static_cast<char>('a' + i)), i,
                        static_cast<uint32_t>(pick(1, static_cast<int>(slots))),
                        limited ? runs + absl::Seconds(pick(0, 20)) : absl::InfiniteDuration()),
                    runs});
  }
  return jobs;
}

// Returns the first job in line that does not fit at once.
std::optional<std::string> FirstThatWaits(uint32_t slots, const std::vector<Planned>& jobs) {
  for (const Planned& planned : jobs) {
    if (planned.job.world_size > slots) return planned.job.id;
    slots -= planned.job.world_size;
  }
  return std::nullopt;
}

TEST(Backfill, WithoutLimitsTheFirstInLineStartsAsIfNobodyHadOvertakenIt) {
  std::mt19937 random(1);
  int overtaken = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t slots = 2 + round % 7;
    const auto jobs = RandomJobs(&random, slots, false);
    const auto first = FirstThatWaits(slots, jobs);
    if (!first.has_value()) continue;
    const Course with = CourseOf(slots, jobs, true);
    const Course without = CourseOf(slots, jobs, false);
    ASSERT_EQ(with.starts.at(*first), without.starts.at(*first)) << "round " << round;
    for (const Planned& planned : jobs) {
      const std::string& id = planned.job.id;
      overtaken += id > *first && with.starts.at(id) < with.starts.at(*first);
    }
  }
  EXPECT_GT(overtaken, 100);
}

TEST(Backfill, WithLimitsTheFirstInLineStartsNotLaterThanTheyPromise) {
  std::mt19937 random(2);
  int overtaken = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t slots = 2 + round % 7;
    auto jobs = RandomJobs(&random, slots, true);
    const auto first = FirstThatWaits(slots, jobs);
    if (!first.has_value()) continue;
    const Course with = CourseOf(slots, jobs, true);
    // The latest start that was ever promised: all jobs take as long as they may, and none
    // overtakes.
    for (Planned& planned : jobs) planned.runs = std::max(planned.runs, planned.job.time_limit);
    const bool known = std::none_of(jobs.begin(), jobs.end(), [](const Planned& planned) {
      return planned.runs == absl::InfiniteDuration();
    });
    if (!known) continue;
    const Course latest = CourseOf(slots, jobs, false);
    ASSERT_LE(with.starts.at(*first), latest.starts.at(*first)) << "round " << round;
    for (const Planned& planned : jobs) {
      const std::string& id = planned.job.id;
      overtaken += id > *first && with.starts.at(id) < with.starts.at(*first);
    }
  }
  EXPECT_GT(overtaken, 20);
}

}  // namespace
}  // namespace muster::jobs
