// A coordinator whose database was restored from a backup. Processes, folders, reports and commands
// are newer than the database.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/cluster/saved_job_fixture.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

using RestoredTest = SavedJobTest;

TEST_F(RestoredTest, ANewerGenerationInTheFolderRaisesTheNextOneAndCostsNoRestart) {
  Report({.sequence = 4, .what = jobs::ReportedFailure{.reason = "stale", .newer_generation = 7}});
  Report({.sequence = 2,
          .what = jobs::ReportedFailure{.reason = "rank 0 is gone", .consequence = true}},
         11);
  EXPECT_EQ(job().state(), jobs::State::kRecovering);
  world_.Restart();
  ASSERT_TRUE(world_.Attach(1, {.node = "a", .incarnation = "a", .host = "a", .slots = 2}).ok());
  ExitAll();
  EXPECT_EQ(job().generation, 8u);
  EXPECT_EQ(job().restarts, 0u);
  EXPECT_EQ(job().state(), jobs::State::kStarting);
}

TEST_F(RestoredTest, AProcessOfALaterGenerationIsEndedBeforeTheJobGoesOnAboveIt) {
  world_.Restart();
  AgentHello hello{.node = "a", .incarnation = "a", .host = "a", .slots = 2};
  const WorkerId later{"job", 5, 0, "from the future"};
  hello.running = {{later, 77}};
  world_.effects.clear();
  ASSERT_TRUE(world_.Attach(1, hello).ok());
  bool told = false;
  for (const StopWorker& stop : world_.Stops())
    told |= stop.worker.incarnation == later.incarnation;
  EXPECT_TRUE(told);
  EXPECT_EQ(job().state(), jobs::State::kRecovering);
  const jobs::Job before = job();
  for (uint32_t rank = 0; rank < 2; ++rank) world_.Exit(1, before.Worker(rank), 15);
  EXPECT_FALSE(job().live()) << "it waits for the stranger";
  world_.Pass(5);
  EXPECT_FALSE(job().live());
  world_.Exit(1, later, 15);
  world_.Pass(1);
  EXPECT_FALSE(job().live()) << "others may be on nodes that have not come back yet";
  world_.PassBeating(1, 10);
  EXPECT_EQ(job().generation, 6u);
  EXPECT_EQ(job().restarts, 0u);
}

TEST_F(RestoredTest, AProcessOfAnotherCourseWithTheSameGenerationIsEnded) {
  world_.Restart();
  AgentHello hello{.node = "a", .incarnation = "a", .host = "a", .slots = 2};
  hello.running = {
      {job().Worker(0), 5}, {job().Worker(1), 6}, {{"job", 1, 0, "another course"}, 77}};
  ASSERT_TRUE(world_.Attach(1, hello).ok());
  EXPECT_EQ(job().state(), jobs::State::kRecovering);
  const jobs::Job before = job();
  for (uint32_t rank = 0; rank < 2; ++rank) world_.Exit(1, before.Worker(rank), 15);
  EXPECT_FALSE(job().live()) << "it waits for the stranger";
  world_.Exit(1, {"job", 1, 0, "another course"}, 15);
  world_.PassBeating(1, 12);
  EXPECT_EQ(job().generation, 2u);
  EXPECT_EQ(job().restarts, 0u);
}

TEST_F(RestoredTest, ReportsThatWereLostWithTheDatabaseEndTheGenerationAndCostNoRestart) {
  Report({.sequence = 9, .what = StepDone{.step = 40}});
  EXPECT_EQ(job().state(), jobs::State::kRecovering);
  EXPECT_NE(job().state_reason.find("was the database restored?"), std::string::npos)
      << job().state_reason;
  ExitAll();
  EXPECT_EQ(job().generation, 2u);
  EXPECT_EQ(job().restarts, 0u);
}

// A halted worker may send no further report.
TEST_F(RestoredTest, ReportsThatWereLostWithTheDatabaseAreMissedBeforeTheNextReport) {
  ASSERT_TRUE(world_.cluster()
                  .AttachWorker(12, {.worker = job().Worker(0), .acked_report = 3}, world_.now())
                  .ok());
  EXPECT_EQ(job().state(), jobs::State::kRunning) << "all that was acknowledged is here";
  ASSERT_TRUE(world_.cluster()
                  .AttachWorker(13, {.worker = job().Worker(0), .acked_report = 5}, world_.now())
                  .ok());
  world_.Commit();
  EXPECT_EQ(job().state(), jobs::State::kRecovering);
  EXPECT_EQ(job().interruption(),
            "reports 4 to 5 of rank 0 were acknowledged and are missing here: was the database "
            "restored?");
  ExitAll();
  EXPECT_EQ(job().generation, 2u);
  EXPECT_EQ(job().restarts, 0u);
}

TEST_F(RestoredTest, AWorkerOfALaterGenerationIsRefusedAndTheNextGenerationIsAboveIt) {
  WorkerId later = job().Worker(0);
  later.generation = 7;
  EXPECT_EQ(RefusalReason(world_.cluster().AttachWorker(12, {.worker = later}, world_.now())),
            "STALE_GENERATION");
  world_.Commit();
  EXPECT_EQ(job().state(), jobs::State::kRecovering);
  ASSERT_FALSE(job().events.empty());
  EXPECT_EQ(job().events.back().reason, "NEWER_GENERATION_FOUND");
  // Reports of the other ranks of that generation change nothing.
  const size_t events = job().events.size();
  later.rank = 1;
  EXPECT_FALSE(world_.cluster().AttachWorker(13, {.worker = later}, world_.now()).ok());
  EXPECT_EQ(job().events.size(), events);
  ExitAll();
  EXPECT_EQ(job().generation, 8u);
  EXPECT_EQ(job().restarts, 0u);
}

TEST_F(RestoredTest, CommandsThatWereLostWithTheDatabaseEndTheGenerationAndCostNoRestart) {
  ASSERT_TRUE(world_.cluster()
                  .AttachWorker(12, {.worker = job().Worker(0), .newest_command = 3}, world_.now())
                  .ok());
  world_.Commit();
  EXPECT_EQ(job().state(), jobs::State::kRecovering);
  ExitAll();
  EXPECT_EQ(job().restarts, 0u);
}

// The checkpoint has the commands from before the backup, and not the newer commands with the same
// numbers.
TEST_F(RestoredTest, ACommandThatARestoredDatabaseGaveAKnownNumberIsCarriedOutUnderAnother) {
  commands::Command rate{.kind = v1::Operation::SET_LEARNING_RATE, .contents = "new"};
  world_.Exit(1, job().Worker(1), 9);
  world_.Exit(1, job().Worker(0), 15);
  AttachAll();
  const auto number = world_.Command("job", rate);
  ASSERT_EQ(*number, 1u);
  world_.effects.clear();
  Report({.sequence = 1, .what = SessionStarted{15, Path(15, 1), /*last_command=*/3}}, rank0());
  const auto& commands = job().commands.commands();
  ASSERT_EQ(commands.size(), 4u);
  EXPECT_EQ(commands[0].outcome->reason, "OPERATION_RENUMBERED");
  EXPECT_NE(commands[0].outcome->message.find("number 4"), std::string::npos);
  EXPECT_EQ(commands[1].outcome->reason, "OPERATION_LOST");
  EXPECT_EQ(commands[3].contents, "new");
  EXPECT_FALSE(commands[3].outcome.has_value());
  // The worker is told all of the commands, in order. It skips the old number.
  std::vector<uint64_t> told;
  for (const auto& delivery : world_.Orders<SendToWorker, commands::Delivery>()) {
    told.push_back(delivery.command.number);
    EXPECT_EQ(delivery.when == commands::Delivery::When::kWhenDue, delivery.command.number == 4);
  }
  EXPECT_EQ(told, (std::vector<uint64_t>{2, 3, 4, 2, 3, 4}));
  // A report of the worker about the old number is about the lost command.
  Report({.sequence = 2, .what = CommandApplied{1, 12}}, rank0());
  EXPECT_FALSE(job().commands.Find(1)->applied_step.has_value());
  Report({.sequence = 3, .what = CommandApplied{4, 15}}, rank0());
  EXPECT_EQ(job().commands.Find(4)->applied_step, 15u);
}

// Rank 0 was lost between its reports that the command took effect and that it ended.
TEST_F(RestoredTest, ACommandThatTheCheckpointHasIsDone) {
  ASSERT_EQ(*world_.Command("job", {.kind = v1::Operation::SET_LEARNING_RATE}), 1u);
  Report({.sequence = 4, .what = CommandApplied{1, 9}});
  world_.Exit(1, job().Worker(1), 9);
  world_.Exit(1, job().Worker(0), 15);
  AttachAll();
  Report({.sequence = 1, .what = SessionStarted{10, Path(10, 1), /*last_command=*/1}}, rank0());
  ASSERT_TRUE(job().commands.Find(1)->outcome.has_value());
  EXPECT_EQ(job().commands.Find(1)->outcome->code, absl::StatusCode::kOk);
}

TEST_F(RestoredTest, CommandsThatAnEarlierGenerationWasToldKeepTheirNumbers) {
  commands::Command rate{.kind = v1::Operation::SET_LEARNING_RATE};
  ASSERT_EQ(*world_.Command("job", rate), 1u);
  world_.Exit(1, job().Worker(1), 9);
  world_.Exit(1, job().Worker(0), 15);
  AttachAll();
  Report({.sequence = 1, .what = SessionStarted{15, Path(15, 1), /*last_command=*/1}}, rank0());
  EXPECT_EQ(job().commands.commands().size(), 1u);
  EXPECT_FALSE(job().commands.Find(1)->outcome.has_value());
}

}  // namespace
}  // namespace muster::cluster
