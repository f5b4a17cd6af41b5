#include "worker/train/rollcall/roll_call.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "worker/comm/local/local_group.h"

namespace muster::train {
namespace {

RollCallRecord Rank(int64_t newest_command, double loss_sum) {
  return {.generation = 2,
          .step = 8,
          .input = {.micro_batches = 2, .samples = 6},
          .newest_command = newest_command,
          .layout = 77,
          .learning_rate = 0.5,
          .loss = {.step = 7, .sum = loss_sum, .weight = 2}};
}

TEST(Decide, DividesByAllMicroBatchesAndAveragesTheLoss) {
  const auto plan = Decide({Rank(0, 1.0), Rank(0, 2.0), Rank(0, 6.0)}, {.full_micro_batches = 6});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->inputs.divisor, 6.0);
  EXPECT_EQ(plan->inputs.samples, 18);
  ASSERT_TRUE(plan->loss.has_value());
  EXPECT_EQ(plan->loss->step, 7);
  EXPECT_EQ(plan->loss->mean, 1.5);
}

TEST(Decide, AppliesOnlyCommandsThatEveryRankHolds) {
  EXPECT_EQ(Decide({Rank(3, 1), Rank(1, 1), Rank(2, 1)})->apply_commands, 1);
}

TEST(Decide, RanksThatCalledOtherCollectivesOrMoreOfThemAreFoundBeforeAnythingIsDecided) {
  RollCallRecord record = Rank(0, 1);
  record.collectives.count = 12;
  record.collectives.hash = 99;
  EXPECT_FALSE(Decide({record, record})->collectives_differ);
  RollCallRecord more = record;
  ++more.collectives.count;
  EXPECT_TRUE(Decide({record, record, more})->collectives_differ);
  RollCallRecord others = record;
  ++others.collectives.hash;
  others.loss.sum = std::nan("");  // The difference is told, not the loss that it may have caused.
  const auto plan = Decide({record, others});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->collectives_differ);
}

TEST(Decide, OneRankThatIsPreemptedIsEnough) {
  RollCallRecord preempted = Rank(0, 1);
  preempted.preempted = true;
  EXPECT_TRUE(Decide({Rank(0, 1), preempted})->preempted);
  EXPECT_FALSE(Decide({Rank(0, 1), Rank(0, 1)})->preempted);
}

TEST(Decide, OneRankThatKnowsOfAnUnusedParameterIsEnough) {
  RollCallRecord knows = Rank(0, 1);
  knows.unused_news = true;
  EXPECT_TRUE(Decide({Rank(0, 1), knows})->unused_news);
  EXPECT_FALSE(Decide({Rank(0, 1), Rank(0, 1)})->unused_news);
}

TEST(Decide, HasNoLossBeforeTheFirstStep) {
  RollCallRecord first;
  first.step = 1;
  EXPECT_FALSE(Decide({first, first})->loss.has_value());
}

TEST(Decide, ALossThatIsNotFiniteNamesStepAndRank) {
  const auto plan = Decide({Rank(0, 1.0), Rank(0, std::nan(""))});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kOutOfRange);
  const std::string message(plan.status().message());
  EXPECT_NE(message.find("step 7 is not finite on rank 1"), std::string::npos) << message;
}

RollCallRecord Rank(StepOutcome outcome, double loss_sum) {
  RollCallRecord record = Rank(0, loss_sum);
  record.loss.outcome = static_cast<int64_t>(outcome);
  return record;
}

std::string ErrorOf(const std::vector<RollCallRecord>& table) {
  const absl::Status status = Decide(table).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  return std::string(status.message());
}

TEST(Decide, WhatIsNotFiniteEndsTheJobUnlessTheStepWasSkippedForIt) {
  const double nan = std::nan(""), inf = INFINITY;
  const std::string advice = "; check the learning rate, clip_grad_norm, and the data of that step";
  const std::string kept_out = "; no checkpoint and no export contains this step";
  EXPECT_EQ(ErrorOf({Rank(StepOutcome::kApplied, 1), Rank(StepOutcome::kApplied, -inf)}),
            "the loss of step 7 is not finite on rank 1 (-inf)" + kept_out + advice);
  for (const auto& [outcome, what] : {std::pair(StepOutcome::kRefused, kept_out),
                                      {StepOutcome::kOverflowed, "; the step was not applied"}}) {
    EXPECT_EQ(ErrorOf({Rank(outcome, nan), Rank(outcome, 1), Rank(outcome, inf), Rank(outcome, nan),
                       Rank(outcome, nan)}),
              "the loss of step 7 is not finite on rank 0 (nan), rank 2 (inf), rank 3 (nan) and 1 "
              "more" +
                  what + advice);
  }
  EXPECT_EQ(ErrorOf({Rank(StepOutcome::kRefused, 1), Rank(StepOutcome::kRefused, 2)}),
            "a gradient of step 7 is not finite, although the loss is (0.75)" + kept_out + advice);
  for (const StepOutcome outcome : {StepOutcome::kOverflowed, StepOutcome::kSkipped}) {
    EXPECT_EQ(Decide({Rank(outcome, 1), Rank(outcome, 2)})->loss->mean, 0.75);
  }
  const auto skipped = Decide({Rank(StepOutcome::kSkipped, 1), Rank(StepOutcome::kSkipped, nan)});
  ASSERT_TRUE(skipped.ok()) << skipped.status();
  EXPECT_TRUE(std::isnan(skipped->loss->mean));
}

TEST(Decide, ADifferenceIsNamedWithBothRanks) {
  const struct {
    int64_t& (*field)(RollCallRecord& record);
    const char* name;
  } cases[] = {{[](RollCallRecord& record) -> int64_t& { return record.generation; }, "generation"},
               {[](RollCallRecord& record) -> int64_t& { return record.step; }, "step"},
               {[](RollCallRecord& record) -> int64_t& { return record.attempt; }, "attempt"},
               {[](RollCallRecord& record) -> int64_t& { return record.epoch; }, "epoch"},
               {[](RollCallRecord& record) -> int64_t& { return record.cursor; }, "sampler cursor"},
               {[](RollCallRecord& record) -> int64_t& { return record.layout; },
                "layout of the parameters"},
               {[](RollCallRecord& record) -> int64_t& { return record.loss.step; }, "loss step"},
               {[](RollCallRecord& record) -> int64_t& { return record.loss.outcome; },
                "outcome of the loss step"}};
  for (const auto& [field, name] : cases) {
    std::vector<RollCallRecord> table(3, Rank(0, 1.0));
    field(table[2]) += 1;
    const absl::Status status = Decide(table).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    const std::string message(status.message());
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find("rank 2 says"), std::string::npos) << message;
  }
}

RollCallRecord Wants(int64_t mask_hash, int64_t first_change) {
  RollCallRecord record = Rank(0, 1.0);
  record.mask_hash = mask_hash;
  record.first_change = first_change;
  return record;
}

TEST(Decide, NamesTheFirstParameterThatOnlySomeRanksFreezeWhereverTheRanksAre) {
  const std::vector<std::string> names = {"a", "b", "c"};
  std::vector<RollCallRecord> table = {Wants(1, -1), Wants(2, 2),  Wants(3, 1),
                                       Wants(1, -1), Wants(1, -1), Wants(1, -1)};
  table[0].step += 1;  // rank 0 saw no change and is one step further
  const absl::Status status = Decide(table, {.names = names}).status();
  EXPECT_EQ(status,
            absl::FailedPreconditionError("roll call of step 9: the ranks differ in which "
                                          "parameters are trained: 'b' was frozen or unfrozen "
                                          "on rank 2 and not on ranks 0, 1, 3 and 2 more"));
  EXPECT_NE(std::string(Decide(table).status().message()).find("parameter number 1"),
            std::string::npos);
}

TEST(Decide, RanksThatDifferBehindTheFirstChangeCompareFlagByFlag) {
  EXPECT_TRUE(Decide({Wants(1, 0), Wants(2, 0)})->masks_differ);
  EXPECT_FALSE(Decide({Wants(1, 0), Wants(1, 0)})->masks_differ);
}

TEST(RollCall, EveryRankGetsThePlanOfTheWholeTable) {
  constexpr int kRanks = 3;
  auto group = comm::LocalGroup::Create(kRanks);
  std::vector<RollCallPlan> plans(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      RollCall roll_call(group[rank].get());
      RollCallRecord record = Rank(/*newest_command=*/5 - rank, /*loss_sum=*/rank + 0.1);
      record.preempted = rank == 1;
      roll_call.Post(record);
      const auto plan = roll_call.Await();
      ASSERT_TRUE(plan.ok()) << plan.status();
      plans[rank] = *plan;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const RollCallPlan& plan : plans) {
    EXPECT_EQ(plan.apply_commands, 3);
    EXPECT_TRUE(plan.preempted);
    EXPECT_EQ(plan.inputs.samples, 18);
    EXPECT_EQ(plan.loss->mean, ((0.1 + 1.1) + 2.1) / 6);
  }
}

}  // namespace
}  // namespace muster::train
