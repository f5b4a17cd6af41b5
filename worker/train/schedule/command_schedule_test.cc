#include "worker/train/schedule/command_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/train/reports/test_commands.h"

namespace muster::train {
namespace {

Command Rate(int64_t number, std::optional<int64_t> at_step = std::nullopt) {
  return Numbered(number, RateOf(0.1), at_step);
}
Command Replay(int64_t number, int64_t step) {
  Command replay = Numbered(number, RateOf(0.1), step);
  replay.set_replay(true);
  return replay;
}
Command Cancel(int64_t number, int64_t target) { return Numbered(number, CancelOf(target)); }
template <typename What>
Command A(int64_t number) {
  return Numbered(number, train::A(What()));
}

// Returns the numbers of the commands that take effect. "2 3!": command 2, then command 3, a cancel
// with a target.
std::string Taken(CommandSchedule& schedule, const std::vector<Command>& log, int64_t newest,
                  int64_t step) {
  std::string text;
  const auto get = [&](int64_t number) {
    EXPECT_EQ(log.at(number - 1).number(), number);
    return log.at(number - 1);
  };
  schedule.TakeIn(newest, step, get);
  while (const auto due = schedule.Next(step)) {
    absl::StrAppend(&text, text.empty() ? "" : " ", due->command.number(), due->cancels ? "!" : "");
  }
  return text;
}

TEST(CommandSchedule, TakesWhatEveryRankHoldsOnceAndInOrder) {
  CommandSchedule schedule;
  const std::vector<Command> log = {Rate(1), Rate(2), Rate(3)};
  EXPECT_EQ(Taken(schedule, log, 2, 4), "1 2");
  EXPECT_EQ(Taken(schedule, log, 2, 5), "");
  EXPECT_EQ(Taken(schedule, log, 3, 6), "3");
  EXPECT_EQ(schedule.position(), (CommandSchedule::Position{.taken = 3}));
}

TEST(CommandSchedule, AStepIsWaitedForWithoutHoldingUpTheRest) {
  CommandSchedule schedule;
  const std::vector<Command> log = {Rate(1, 10), Rate(2), Rate(3, 8), Rate(4, 2)};
  EXPECT_EQ(Taken(schedule, log, 4, 5), "2 4");
  EXPECT_EQ(schedule.position(), (CommandSchedule::Position{.taken = 4, .waiting = {1, 3}}));
  EXPECT_EQ(Taken(schedule, log, 4, 7), "");
  EXPECT_EQ(Taken(schedule, log, 4, 12), "3 1");
}

TEST(CommandSchedule, AWaitingCommandCanBeCancelledAndOneThatTookEffectCannot) {
  CommandSchedule schedule;
  const std::vector<Command> log = {Rate(1, 10), Rate(2), Cancel(3, 1), Cancel(4, 2), Cancel(5, 1)};
  EXPECT_EQ(Taken(schedule, log, 2, 5), "2");
  EXPECT_EQ(Taken(schedule, log, 5, 6), "3! 4 5");
  EXPECT_EQ(Taken(schedule, log, 5, 20), "");
}

TEST(CommandSchedule, ACommandAndItsCancelThatComeTogetherDoNothing) {
  CommandSchedule schedule;
  EXPECT_EQ(Taken(schedule, {Rate(1), Cancel(2, 1)}, 2, 5), "2!");
}

TEST(CommandSchedule, WhatIsDoneIsNotDoneAgain) {
  CommandSchedule schedule;
  EXPECT_EQ(Taken(schedule, {A<v1::NoCommand>(1), Rate(2), A<v1::NoCommand>(3)}, 3, 0), "2");
}

TEST(CommandSchedule, AfterARollbackCommandsTakeEffectWhereTheyDidAndLaterOnesNotBefore) {
  CommandSchedule schedule;
  const std::vector<Command> log = {Replay(1, 12), Rate(2), Replay(3, 15), Rate(4), Rate(5, 40)};
  EXPECT_EQ(Taken(schedule, log, 4, 10), "");
  EXPECT_EQ(Taken(schedule, log, 5, 11), "");
  EXPECT_EQ(Taken(schedule, log, 5, 12), "1 2");
  EXPECT_EQ(Taken(schedule, log, 5, 14), "");
  EXPECT_EQ(Taken(schedule, log, 5, 15), "3 4");
  EXPECT_EQ(Taken(schedule, log, 5, 40), "5");
}

TEST(CommandSchedule, AJobThatIsHaltedBeforeAReplayIsDueCanGoOn) {
  CommandSchedule schedule;
  const std::vector<Command> log = {Replay(1, 12), A<v1::PauseCommand>(2),
                                    A<v1::SaveCheckpointCommand>(3), A<v1::ResumeCommand>(4),
                                    Rate(5)};
  EXPECT_EQ(Taken(schedule, log, 2, 10), "2");
  EXPECT_EQ(Taken(schedule, log, 5, 10), "3 4");
  EXPECT_EQ(Taken(schedule, log, 5, 12), "1 5");
}

TEST(CommandSchedule, ACommandThatHadBegunIsNotCancelled) {
  CommandSchedule schedule;
  Command save = A<v1::SaveCheckpointCommand>(1);
  save.set_begun(true);
  EXPECT_EQ(Taken(schedule, {save, Cancel(2, 1)}, 2, 10), "2 1");
}

TEST(CommandSchedule, AGatherThatHadBegunIsCancelledBeforeItIsCarriedOutAgain) {
  CommandSchedule schedule;
  Command gather = A<v1::GatherOptimizerStateCommand>(1);
  gather.set_begun(true);
  EXPECT_EQ(Taken(schedule, {gather, Cancel(2, 1)}, 2, 10), "2!");
  CommandSchedule of_model;
  Command consolidate = A<v1::ConsolidateCommand>(1);
  consolidate.set_begun(true);
  EXPECT_EQ(Taken(of_model, {consolidate, Cancel(2, 1)}, 2, 10), "2!");
}

TEST(CommandSchedule, APassThatWasNotFinishedIsDoneAgainUnlessItIsCancelled) {
  Command pass = A<v1::RunStageCommand>(1);
  Command sample = A<v1::SampleCommand>(2);
  pass.set_begun(true);
  sample.set_begun(true);
  pass.set_at_step(12);
  // A checkpoint that includes both commands.
  CommandSchedule again({.taken = 2});
  EXPECT_EQ(Taken(again, {pass, sample}, 2, 10), "2");
  EXPECT_EQ(Taken(again, {pass, sample}, 2, 12), "1");
  sample.set_at_step(12);
  CommandSchedule cancelled({.taken = 2});
  EXPECT_EQ(Taken(cancelled, {pass, sample, Cancel(3, 1), Cancel(4, 2)}, 4, 10), "3! 4!");
}

TEST(CommandSchedule, AReplayIsNotCancelled) {
  CommandSchedule schedule;
  EXPECT_EQ(Taken(schedule, {Replay(1, 12), Cancel(2, 1)}, 2, 10), "2");
  EXPECT_EQ(Taken(schedule, {Replay(1, 12), Cancel(2, 1)}, 2, 12), "1");
}

TEST(CommandSchedule, ResumesFromACheckpoint) {
  CommandSchedule schedule({.taken = 4, .waiting = {2}});
  EXPECT_EQ(schedule.position(), (CommandSchedule::Position{.taken = 4, .waiting = {2}}));
  const std::vector<Command> log = {Replay(1, 3), Rate(2, 20), Replay(3, 5), A<v1::NoCommand>(4),
                                    Rate(5)};
  EXPECT_EQ(Taken(schedule, log, 5, 10), "5");
  EXPECT_EQ(schedule.position(), (CommandSchedule::Position{.taken = 5, .waiting = {2}}));
  EXPECT_EQ(Taken(schedule, log, 5, 20), "2");
}

TEST(CommandSchedule, ACheckpointBetweenCommandsOfOneBoundaryHasTheRestOfThemWaiting) {
  CommandSchedule schedule;
  const std::vector<Command> log = {A<v1::SaveCheckpointCommand>(1), Rate(2),
                                    A<v1::PauseCommand>(3)};
  const auto get = [&](int64_t number) { return log.at(number - 1); };
  schedule.TakeIn(3, 5, get);
  EXPECT_EQ(schedule.Next(5)->command.number(), 1);
  const CommandSchedule::Position position = schedule.position();
  EXPECT_EQ(position, (CommandSchedule::Position{.taken = 3, .waiting = {2, 3}}));
  CommandSchedule restored(position);
  EXPECT_EQ(Taken(restored, {A<v1::NoCommand>(1), Rate(2), A<v1::PauseCommand>(3)}, 3, 5), "2 3");
}

TEST(CommandSchedule, WhatIsInForceOutlastsTheCheckpointThatWasWrittenAfterIt) {
  CommandSchedule schedule({.taken = 3});
  const std::vector<Command> log = {A<v1::PauseCommand>(1), A<v1::SaveCheckpointCommand>(2),
                                    A<v1::ResumeCommand>(3)};
  // The resume also takes effect again, if the coordinator has not heard of it.
  EXPECT_EQ(Taken(schedule, log, 3, 10), "1 2 3");
}

Command Begun(Command command, int64_t at_step) {
  command.set_begun(true);
  command.set_at_step(at_step);
  return command;
}

TEST(CommandSchedule, APauseWaitsUntilAnUnfinishedCommandReachesItsStep) {
  CommandSchedule schedule;
  const std::vector<Command> log = {A<v1::PauseCommand>(1), Rate(2),
                                    Begun(A<v1::GatherOptimizerStateCommand>(3), 22)};
  EXPECT_EQ(Taken(schedule, log, 3, 20), "2");
  EXPECT_EQ(schedule.position(), (CommandSchedule::Position{.taken = 3, .waiting = {1, 3}}));
  EXPECT_EQ(Taken(schedule, log, 3, 21), "");
  EXPECT_EQ(Taken(schedule, log, 3, 22), "1 3");
}

TEST(CommandSchedule, APauseThatIsHeldBackDoesNotOutlastAResume) {
  CommandSchedule schedule;
  const std::vector<Command> log = {
      A<v1::PauseCommand>(1), Begun(A<v1::SaveCheckpointCommand>(2), 22), A<v1::ResumeCommand>(3)};
  EXPECT_EQ(Taken(schedule, log, 2, 20), "");
  EXPECT_EQ(Taken(schedule, log, 3, 21), "1 3");
  EXPECT_EQ(Taken(schedule, log, 3, 22), "2");
}

TEST(CommandSchedule, APauseIsNotHeldBackAnyLongerWhenTheUnfinishedCommandIsCancelled) {
  CommandSchedule schedule;
  const std::vector<Command> log = {A<v1::PauseCommand>(1), Begun(A<v1::SampleCommand>(2), 22),
                                    Cancel(3, 2)};
  EXPECT_EQ(Taken(schedule, log, 2, 20), "");
  EXPECT_EQ(Taken(schedule, log, 3, 21), "3! 1");
}

TEST(CommandSchedule, AReplayHoldsNoPauseBack) {
  CommandSchedule schedule;
  EXPECT_EQ(Taken(schedule, {A<v1::PauseCommand>(1), Replay(2, 22)}, 2, 20), "1");
}

TEST(CommandSchedule, AStopThatNobodyHeardOfOutlastsTheCheckpointThatItWrote) {
  CommandSchedule schedule({.taken = 2});
  EXPECT_EQ(Taken(schedule, {Rate(1), A<v1::StopCommand>(2)}, 2, 10), "2");
}

}  // namespace
}  // namespace muster::train
