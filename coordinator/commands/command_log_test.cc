#include "coordinator/commands/command_log.h"

#include <gtest/gtest.h>

namespace muster::commands {
namespace {

using When = Delivery::When;

const absl::Time kNow = absl::FromUnixSeconds(7);

CommandLog LogOf(const std::vector<v1::Operation::Kind>& kinds) {
  CommandLog log;
  for (const v1::Operation::Kind kind : kinds) log.Append({.kind = kind});
  return log;
}

Outcome Failed() {
  return {.time = kNow, .code = absl::StatusCode::kCancelled, .message = "taken back"};
}

std::vector<When> Whens(const CommandLog& log) {
  std::vector<When> whens;
  for (const Delivery& delivery : log.After(0)) whens.push_back(delivery.when);
  return whens;
}

TEST(CommandLog, NumbersAreFromOneWithoutGaps) {
  CommandLog log;
  EXPECT_EQ(log.Append({.kind = v1::Operation::STOP}), 1);
  EXPECT_EQ(log.Append({.kind = v1::Operation::STOP}), 2);
  EXPECT_EQ(log.Find(2)->number, 2);
  EXPECT_EQ(log.Find(0), nullptr);
  EXPECT_EQ(log.Find(3), nullptr);
}

TEST(CommandLog, DeliversWhatAWorkerDoesNotHold) {
  const CommandLog log = LogOf({v1::Operation::PAUSE, v1::Operation::RESUME, v1::Operation::STOP});
  ASSERT_EQ(log.After(1).size(), 2);
  EXPECT_EQ(log.After(1)[0].command.number, 2);
  EXPECT_EQ(log.After(0).size(), 3);
  EXPECT_TRUE(log.After(3).empty());
  EXPECT_TRUE(log.After(99).empty());
}

TEST(CommandLog, TheFirstAcknowledgementStands) {
  CommandLog log = LogOf({v1::Operation::STOP});
  EXPECT_TRUE(log.Applied(1, 17));
  EXPECT_FALSE(log.Applied(1, 18));
  EXPECT_EQ(log.commands()[0].applied_step, 17);
  EXPECT_TRUE(log.Finished(1, Failed()));
  EXPECT_FALSE(log.Finished(1, {.time = kNow}));
  EXPECT_EQ(log.commands()[0].outcome, Failed());
}

TEST(CommandLog, UnknownNumbersAreIgnored) {
  CommandLog log;
  EXPECT_FALSE(log.Applied(0, 1));
  EXPECT_FALSE(log.Applied(1, 1));
  EXPECT_FALSE(log.Finished(1, {}));
}

TEST(CommandLog, GoesOnWhereTheStoredOneEnded) {
  CommandLog first = LogOf({v1::Operation::STOP});
  first.Applied(1, 5);
  CommandLog second(first.commands());
  EXPECT_EQ(second.commands(), first.commands());
  EXPECT_EQ(second.Append({.kind = v1::Operation::STOP}), 2);
}

TEST(CommandLog, WhatChangedStateIsReplayedAndTheRestOfItIsNew) {
  CommandLog log = LogOf({v1::Operation::SET_TRAINABILITY, v1::Operation::SET_LEARNING_RATE,
                          v1::Operation::REFRESH, v1::Operation::SET_TRAINABILITY});
  for (const uint64_t number : {1, 2, 3}) {
    log.Applied(number, 10 * number);
    log.Finished(number, {.time = kNow});
  }
  EXPECT_EQ(Whens(log), (std::vector{When::kReplay, When::kReplay, When::kReplay, When::kWhenDue}));
  EXPECT_EQ(log.After(0)[1].command.applied_step, 20);
}

TEST(CommandLog, WhatACheckpointHasIsDoneAlthoughItsEndWasNotHeardOf) {
  CommandLog log = LogOf({v1::Operation::SET_LEARNING_RATE, v1::Operation::SET_LEARNING_RATE,
                          v1::Operation::SAVE_CHECKPOINT, v1::Operation::SET_LEARNING_RATE,
                          v1::Operation::SET_LEARNING_RATE});
  log.Applied(1, 10);
  log.Applied(2, 11);  // after the checkpoint
  log.Applied(3, 10);  // a save: begun, but perhaps not ended
  log.Applied(5, 10);  // not in the checkpoint
  log.FinishTaken(4, 10, kNow);
  ASSERT_TRUE(log.Find(1)->outcome.has_value());
  EXPECT_EQ(log.Find(1)->outcome->code, absl::StatusCode::kOk);
  for (const uint64_t number : {2, 3, 4, 5}) {
    EXPECT_FALSE(log.Find(number)->outcome.has_value()) << number;
  }
}

TEST(CommandLog, ACheckpointIsWrittenAgainUnlessItIsDone) {
  CommandLog log = LogOf({v1::Operation::SAVE_CHECKPOINT, v1::Operation::SAVE_CHECKPOINT});
  log.Applied(1, 10);
  log.Finished(1, {.time = kNow});
  log.Applied(2, 20);
  EXPECT_EQ(Whens(log), (std::vector{When::kNever, When::kWhenDue}));
}

TEST(CommandLog, APassAndASampleAreDoneAgainUnlessTheirResultIsKnown) {
  CommandLog log =
      LogOf({v1::Operation::RUN_STAGE, v1::Operation::SAMPLE, v1::Operation::RUN_STAGE});
  log.Applied(1, 10);
  log.Finished(1, {.time = kNow, .result = "passed"});
  log.Applied(2, 20);
  EXPECT_EQ(Whens(log), (std::vector{When::kNever, When::kWhenDue, When::kWhenDue}));
  // A checkpoint that has a command's effect does not have its result.
  log.FinishTaken(3, 30, kNow);
  EXPECT_FALSE(log.Find(2)->outcome.has_value());
}

TEST(CommandLog, AHaltedJobHaltsAgainUntilItIsResumed) {
  CommandLog log = LogOf({v1::Operation::PAUSE});
  log.Applied(1, 10);
  log.Finished(1, {.time = kNow});
  EXPECT_EQ(Whens(log), (std::vector{When::kWhenDue}));
  log.Append({.kind = v1::Operation::RESUME});
  EXPECT_EQ(Whens(log), (std::vector{When::kWhenDue, When::kWhenDue}));
  log.Applied(2, 10);
  log.Finished(2, {.time = kNow});
  EXPECT_EQ(Whens(log), (std::vector{When::kNever, When::kNever}));
}

TEST(CommandLog, WhatWasTakenBackOrRefusedIsNeverDone) {
  CommandLog log = LogOf(
      {v1::Operation::SET_LEARNING_RATE, v1::Operation::SET_TRAINABILITY, v1::Operation::CANCEL});
  log.Finished(1, Failed());
  log.Applied(2, 5);
  log.Finished(2, Failed());
  log.Applied(3, 5);
  log.Finished(3, {.time = kNow});
  EXPECT_EQ(Whens(log), (std::vector{When::kNever, When::kNever, When::kNever}));
}

TEST(CommandLog, TheEndOfTheJobEndsEachCommandWithThatReason) {
  CommandLog log = LogOf({v1::Operation::SET_TRAINABILITY, v1::Operation::SAVE_CHECKPOINT,
                          v1::Operation::STOP, v1::Operation::SET_LEARNING_RATE});
  log.Applied(1, 4);
  log.Finished(1, {.time = kNow});
  log.Applied(2, 5);
  log.Applied(3, 6);
  const absl::Time later = kNow + absl::Seconds(1);
  log.Append({.kind = v1::Operation::STOP, .at_step = 100});
  EXPECT_TRUE(log.EndAll("CANCELLED", true, later));
  EXPECT_EQ(log.Find(1)->outcome, (Outcome{.time = kNow}));
  EXPECT_EQ(log.Find(2)->outcome->message, "the job ended (CANCELLED) before this was finished");
  EXPECT_EQ(log.Find(3)->outcome, (Outcome{.time = later}));
  EXPECT_EQ(log.Find(4)->outcome->code, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(log.Find(4)->outcome->reason, "JOB_ENDED");
  EXPECT_EQ(log.Find(4)->outcome->message, "the job ended (CANCELLED) before this was carried out");
  EXPECT_EQ(log.Find(5)->outcome->reason, "JOB_ENDED");
  EXPECT_FALSE(log.EndAll("CANCELLED", true, later));
}

TEST(CommandLog, AChangeThatACheckpointHasWasNotOvertakenByTheJobsEnd) {
  CommandLog log = LogOf(
      {v1::Operation::SET_LEARNING_RATE, v1::Operation::PAUSE, v1::Operation::SET_LEARNING_RATE});
  log.Finished(3, Failed());
  EXPECT_TRUE(log.EndAll("FAILED", false, kNow));
  EXPECT_TRUE(log.Applied(1, 7));
  EXPECT_EQ(log.Find(1)->outcome, (Outcome{.time = kNow}));
  EXPECT_EQ(log.After(0)[0].when, When::kReplay);
  // The same holds if only the report of the command's end is missing.
  log.Append({.kind = v1::Operation::SET_TRAINABILITY});
  EXPECT_TRUE(log.Applied(4, 8));
  EXPECT_TRUE(log.EndAll("FAILED", false, kNow));
  EXPECT_TRUE(log.Applied(4, 8));
  EXPECT_EQ(log.Find(4)->outcome, (Outcome{.time = kNow}));
  EXPECT_FALSE(log.Applied(4, 8));
  // A halt of the former attempt is over, and cancelled commands stay cancelled.
  EXPECT_FALSE(log.Applied(2, 7));
  EXPECT_FALSE(log.Applied(3, 7));
}

TEST(CommandLog, KnowsWhetherACommandIsBeingTakenBack) {
  CommandLog log = LogOf({v1::Operation::SET_LEARNING_RATE});
  EXPECT_FALSE(log.IsBeingCancelled(1));
  log.Append({.kind = v1::Operation::CANCEL, .target = 1});
  EXPECT_TRUE(log.IsBeingCancelled(1));
  EXPECT_FALSE(log.IsBeingCancelled(2));
  log.Finished(2, {.time = kNow});
  EXPECT_FALSE(log.IsBeingCancelled(1));
}

TEST(CommandLog, KnowsWhetherTheJobWillBeHalted) {
  CommandLog log;
  EXPECT_FALSE(log.WillBePaused());
  log.Append({.kind = v1::Operation::PAUSE});
  EXPECT_TRUE(log.WillBePaused());
  log.Append({.kind = v1::Operation::RESUME});
  EXPECT_FALSE(log.WillBePaused());
  log.Append({.kind = v1::Operation::PAUSE});
  log.Finished(3, Failed());
  EXPECT_FALSE(log.WillBePaused());
}

TEST(CommandLog, AHaltThatWaitsForAStepIsNoneYetAndOutlastsAnEarlierResume) {
  CommandLog log;
  log.Append({.kind = v1::Operation::PAUSE, .at_step = 8});
  EXPECT_FALSE(log.WillBePaused());
  log.Append({.kind = v1::Operation::PAUSE});
  log.Applied(2, 5);
  log.Append({.kind = v1::Operation::RESUME});
  EXPECT_FALSE(log.WillBePaused());
  log.Applied(3, 5);
  log.Applied(1, 8);
  EXPECT_TRUE(log.WillBePaused());
  EXPECT_EQ(Whens(log), (std::vector{When::kWhenDue, When::kNever, When::kWhenDue}));
  // The job was resumed at an earlier step, after a rollback.
  log.Append({.kind = v1::Operation::RESUME});
  log.Applied(4, 6);
  EXPECT_FALSE(log.WillBePaused());
  EXPECT_EQ(Whens(log)[0], When::kNever);
}

// ---- After a restored database.

TEST(CommandLog, LostCommandsAreFilledInAndWhatHasTheirNumbersGoesOnAboveThem) {
  CommandLog log;
  log.Append({.kind = v1::Operation::SET_LEARNING_RATE, .contents = "known"});
  log.Append({.kind = v1::Operation::SET_LEARNING_RATE, .contents = "new"});
  log.Append({.kind = v1::Operation::CANCEL, .target = 2});
  log.Append({.kind = v1::Operation::PAUSE});
  const auto moved = log.RenumberAbove(/*number=*/6, /*known=*/1, absl::UnixEpoch());
  using Moved = std::vector<std::pair<uint64_t, uint64_t>>;
  EXPECT_EQ(moved, (Moved{{2, 7}, {3, 8}}));
  ASSERT_EQ(log.commands().size(), 8u);
  EXPECT_FALSE(log.Find(1)->outcome.has_value());
  EXPECT_EQ(log.Find(2)->outcome->reason, "OPERATION_RENUMBERED");
  EXPECT_FALSE(log.Find(4)->outcome.has_value());  // a worker carries it out nevertheless
  for (const uint64_t lost : {5, 6})
    EXPECT_EQ(log.Find(lost)->outcome->reason, "OPERATION_LOST") << lost;
  EXPECT_EQ(log.Find(7)->contents, "new");
  EXPECT_EQ(log.Find(8)->target, 7u);
  for (const Delivery& delivery : log.After(1)) {
    const uint64_t number = delivery.command.number;
    EXPECT_EQ(delivery.when == Delivery::When::kNever, number != 4 && number != 7 && number != 8)
        << number;
  }
}

TEST(CommandLog, WhereNothingIsLostNothingChanges) {
  CommandLog log;
  for (int i = 0; i < 3; ++i) log.Append({.kind = v1::Operation::SET_LEARNING_RATE});
  const auto before = log.commands();
  EXPECT_TRUE(log.RenumberAbove(3, 3, absl::UnixEpoch()).empty());
  EXPECT_TRUE(log.RenumberAbove(0, 0, absl::UnixEpoch()).empty());
  EXPECT_TRUE(log.RenumberAbove(uint64_t{1} << 60, 3, absl::UnixEpoch()).empty());
  EXPECT_EQ(log.commands(), before);
}

TEST(CommandLog, SaysWhichCommandsHaveChanged) {
  CommandLog log;
  log.Append({.kind = v1::Operation::PAUSE});
  log.Append({.kind = v1::Operation::REFRESH});
  EXPECT_EQ(log.TakeChanged(), (std::set<uint64_t>{1, 2}));
  EXPECT_TRUE(log.TakeChanged().empty());
  log.Applied(1, 5);
  log.Applied(1, 6);
  EXPECT_EQ(log.TakeChanged(), (std::set<uint64_t>{1}));
  log.Append({.kind = v1::Operation::RESUME});
  log.Applied(3, 7);
  EXPECT_EQ(log.TakeChanged(), (std::set<uint64_t>{1, 3}));
  log.Finished(1, {});
  log.EndAll("FAILED", false, absl::FromUnixSeconds(1));
  EXPECT_EQ(log.TakeChanged(), (std::set<uint64_t>{1, 2, 3}));
  EXPECT_FALSE(log.EndAll("FAILED", false, absl::FromUnixSeconds(1)));
  EXPECT_TRUE(log.TakeChanged().empty());
}

TEST(CommandLog, FromTheStoreItAnswersAsBefore) {
  CommandLog log;
  log.Append({.kind = v1::Operation::PAUSE});
  log.Applied(1, 5);
  log.Finished(1, {});
  log.Append({.kind = v1::Operation::SAVE_CHECKPOINT, .at_step = 9});
  log.Append({.kind = v1::Operation::CANCEL, .target = 2});
  CommandLog loaded(log.commands());
  EXPECT_TRUE(loaded.WillBePaused());
  EXPECT_TRUE(loaded.IsBeingCancelled(2));
  EXPECT_EQ(loaded.open(), (std::set<uint64_t>{2, 3}));
  EXPECT_TRUE(loaded.TakeChanged().empty());
  loaded.Append({.kind = v1::Operation::RESUME});
  EXPECT_FALSE(loaded.WillBePaused());
  loaded.Applied(4, 6);
  EXPECT_EQ(loaded.Find(1)->target, 4);
}

TEST(CommandLog, WhatALaterDecisionReplacesIsNotDoneAgain) {
  CommandLog log = LogOf({v1::Operation::SET_LEARNING_RATE, v1::Operation::SET_TRAINABILITY,
                          v1::Operation::SET_LEARNING_RATE, v1::Operation::RESUME,
                          v1::Operation::SET_LEARNING_RATE});
  for (const uint64_t number : {1, 2, 3, 5}) log.Applied(number, 10 * number);
  log.Replace(v1::Operation::SET_LEARNING_RATE, 4);
  EXPECT_EQ(Whens(log), (std::vector<When>{When::kNever, When::kReplay, When::kNever,
                                           When::kWhenDue, When::kReplay}));
  EXPECT_TRUE(log.TakeChanged().contains(3)) << "it is stored";
}

}  // namespace
}  // namespace muster::commands
