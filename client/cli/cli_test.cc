// The stdout, the stderr and the exit codes of `muster`: errors of usage, commands that follow and
// end jobs, and commands without a job.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cli/cli_fixture.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CliTest, HelpIsAResultAndListsTheCommands) {
  EXPECT_EQ(Muster({"--help"}), kDone);
  EXPECT_THAT(out(), AllOf(HasSubstr("submit"), HasSubstr("checkpoints"), HasSubstr("Exit codes")));
  EXPECT_EQ(Muster({"data", "pack", "--help"}), kDone);
  EXPECT_THAT(out(), HasSubstr("--tokenizer"));
}

TEST_F(CliTest, WrongUsageIs2AndSaysWhatIsWrong) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "Usage"},
      {{"sumbit", "job.yaml"}, "there is no command 'sumbit'; did you mean submit?"},
      {{"submit"}, "muster submit: FILE is required; `muster submit --help` says more"},
      {{"list", "-o", "xml"}, "'xml' is not an output format; allowed: table, json or yaml"},
      {{"list", "-o", "csv"}, "'csv' is not an output format"},
      {{"pause", "a", "--at-step", "-5"}, "'-5' is not a number of steps"},
      {{"pause", "a", "--at-step", "18446744073709551616"}, "is not a number of steps"},
      {{"set-lr", "a", "fast"}, "'fast' is not a number"},
      {{"skip-data", "a"}, "muster skip-data: N is required"},
      {{"skip-data", "a", "-3"}, "'-3' is not a number of samples"},
      {{"skip-data", "a", "0"}, "'0' is not a number of samples"},
      {{"list", "extra"}, "muster list: unexpected argument 'extra'; `muster list --help`"},
      {{"list", "--adress=x", "-o", "json"},
       "muster list: there is no option '--adress=x'; did you mean --address?"},
      {{"--address", "127.0.0.1:1", "list"},
       "muster: there is no option '--address'; options come after the command"},
      {{"list", "--state", "runing"},
       "'runing' is not a state; did you mean RUNNING?; allowed: QUEUED, "},
      {{"list", "--state", "state_unspecified"}, "is not a state"},
      {{"list", "--limit", "0"}, "--limit"},
      {{"submit", "job.yaml", "--set"}, "--set"},
      {{"ranks"}, "JOB is required"},
      {{"delete"}, "JOB is required"},
      {{"get", "a", "--frob"}, "--frob"},
      {{"wait", "a", "--timeout", "soon"}, "'soon' is not a duration"},
      {{"wait", "a", "--timeout", "-1s"}, "'-1s' is not a duration"},
      {{"logs", "a", "--rank", "-1"}, "--rank"},
      {{"run", "job.yaml", "--slots", "0"}, "--slots"},
      {{"checkpoints"},
       "muster checkpoints: A subcommand is required; `muster checkpoints --help`"},
      {{"checkpoints", "inspct", "x"},
       "muster checkpoints: there is no command 'inspct'; did you mean inspect?"},
      {{"data", "pack", "--tokenizer", "words", "--out", "o", "i"}, "words"},
      {{"list", "--address", "nowhere"}, "expected HOST:PORT"},
      {{"validate", folder_.Path("job.yaml"), "--address", "nowhere"}, "expected HOST:PORT"},
  };
  for (const auto& [arguments, message] : cases) {
    EXPECT_EQ(Muster(arguments), kUsage) << message;
    EXPECT_THAT(err(), HasSubstr(message));
    EXPECT_THAT(out(), IsEmpty()) << message;
  }
}

TEST_F(CliTest, WithoutAnAddressItSaysHowToGiveOne) {
  environment_.erase("MUSTER_ADDRESS");
  EXPECT_EQ(Muster({"list"}), kUsage);
  EXPECT_THAT(err(), AllOf(HasSubstr("--address"), HasSubstr("MUSTER_ADDRESS")));
}

TEST_F(CliTest, AnAbsentCoordinatorIs104) {
  const std::string address = server_->address();
  server_.reset();
  const std::vector<std::vector<std::string>> commands = {{"list"},
                                                          {"get", "a"},
                                                          {"watch", "a"},
                                                          {"wait", "a"},
                                                          {"logs", "a", "-f"},
                                                          {"stop", "a"},
                                                          {"metrics", "a"},
                                                          {"ranks", "a"},
                                                          {"delete", "a"},
                                                          {"nodes"},
                                                          {"retry", "a"},
                                                          {"drain", "n"},
                                                          {"cordon", "n"},
                                                          {"uncordon", "n"},
                                                          {"submit", folder_.Path("job.yaml")},
                                                          {"run", folder_.Path("job.yaml")}};
  for (const auto& command : commands) {
    EXPECT_EQ(Muster(command), kUnreachable) << command[0];
    EXPECT_THAT(err(), AllOf(HasSubstr(address), HasSubstr("Is musterd running there?")))
        << command[0];
  }
}

TEST_F(CliTest, AnUnknownJobIs102) {
  for (const char* command :
       {"get", "watch", "wait", "logs", "stop", "metrics", "ranks", "delete"}) {
    EXPECT_EQ(Muster({command, "nobody"}), kNotFound) << command;
    EXPECT_THAT(err(), HasSubstr("nobody")) << command;
    EXPECT_THAT(out(), IsEmpty()) << command;
  }
}

TEST_F(CliTest, TheExitCodeSaysHowTheJobEnded) {
  Put("id: 'good' state: SUCCEEDED step: 3 total_steps: 3 loss: 0.5 exported_path: '/w'");
  Put("id: 'stopped' state: CANCELLED");
  Put(R"(id: 'bad' state: FAILED
         failure { rank: 1 node: 'n7' generation: 2 step: 17 reason: 'out of luck'
                   consequences: 'rank 0: peer gone' log_tail: 'first\nlast' })");
  for (const char* command : {"wait", "watch"}) {
    EXPECT_EQ(Muster({command, "good"}), kDone);
    EXPECT_EQ(Muster({command, "stopped"}), kJobCancelled);
    EXPECT_EQ(Muster({command, "bad"}), kJobFailed);
    EXPECT_THAT(err(), HasSubstr("rank 1 on n7, generation 2, step 17: out of luck\n"
                                 "  then: rank 0: peer gone\n"
                                 "  last lines of its log:\n    first\n    last\n"));
  }
  EXPECT_EQ(Muster({"wait", "good"}), kDone);
  EXPECT_EQ(out(), "job good SUCCEEDED: 3/3 steps, loss 0.5000, weights in /w\n");
  for (const char* id : {"good", "stopped", "bad"}) EXPECT_EQ(Muster({"get", id}), kDone);
  Put("id: 'never' state: FAILED state_reason: 'no such device'");
  EXPECT_EQ(Muster({"wait", "never"}), kJobFailed);
  EXPECT_EQ(err(), "muster: job never failed: no such device\n");
  EXPECT_EQ(Muster({"watch", "never"}), kJobFailed);
  EXPECT_THAT(err(), HasSubstr("muster: job never failed: no such device\n"
                               "`muster retry never` continues it, from its newest checkpoint"));
}

TEST_F(CliTest, WaitTimesOutWith101) {
  Put("id: 'a' state: RUNNING");
  EXPECT_EQ(Muster({"wait", "a", "--timeout", "10ms"}), kTimedOut);
  EXPECT_THAT(err(), HasSubstr("10ms"));
}

TEST_F(CliTest, WatchThatLosesItsCoordinatorIs104AfterItsBound) {
  Put("id: 'a' state: RUNNING");
  std::thread killer([this] {
    service_.AwaitWatches(1);
    service_.BreakStreams();
  });
  EXPECT_EQ(Muster({"watch", "a", "--retry-for", "0s"}), kUnreachable);
  killer.join();
  EXPECT_THAT(err(), HasSubstr(server_->address()));
}

TEST_F(CliTest, StopWaitIs0WhenStoppedAsAsked) {
  Put("id: 'a' state: RUNNING");
  EXPECT_EQ(Muster({"stop", "a", "--wait"}), kDone);
  EXPECT_THAT(out(), HasSubstr("CANCELLED"));
  EXPECT_EQ(Muster({"stop", "a"}), kOtherError);
  EXPECT_THAT(err(), HasSubstr("has ended"));
  Put("id: 'b' state: RUNNING");
  service_.StopLeadsTo(v1::Job::FAILED);
  EXPECT_EQ(Muster({"stop", "b", "--wait"}), kJobFailed);
}

TEST_F(CliTest, LogsGoOnUntilTheJobEnds) {
  Put("id: 'a' state: RUNNING");
  std::thread job([this] {
    for (int i = 1; i <= 3; ++i) {
      v1::LogLine line;
      line.set_sequence(i);
      line.set_text("line");
      service_.AddLog("a", line);
    }
    v1::Job ended;
    ended.set_id("a");
    ended.set_state(v1::Job::SUCCEEDED);
    service_.Put(ended);
  });
  EXPECT_EQ(Muster({"logs", "a", "-f"}), kDone);
  job.join();
  EXPECT_EQ(out(), "[0.0] line\n[0.0] line\n[0.0] line\n");
}

TEST_F(CliTest, DrainNamesTheJobsThatStartAgainFromStep0AndSendsItsDeadline) {
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(nodes { name: 'a' state: ATTACHED
                 jobs { job_id: 'kept' ranks: 0 }
                 jobs { job_id: 'lost' ranks: 0 ranks: 1 without_checkpoints: true } })",
      &nodes));
  cluster_.Put(nodes);
  EXPECT_EQ(Muster({"drain", "a"}), kDone);
  EXPECT_EQ(out(), "node a DRAINING, 2 jobs run there\n");
  EXPECT_EQ(err(), "job lost writes no checkpoints: it starts again from step 0 on another node\n");
  EXPECT_FALSE(cluster_.last_drain().has_deadline());
  EXPECT_EQ(Muster({"drain", "a", "--deadline", "1h30m"}), kDone);
  EXPECT_EQ(cluster_.last_drain().deadline().seconds(), 5400);
  EXPECT_EQ(Muster({"drain", "a", "--deadline", "soon"}), kUsage);
  EXPECT_EQ(Muster({"cordon", "a", "--deadline", "1h"}), kUsage);
}

TEST_F(CliTest, BackupWritesTheWholeFileForItsOwnerOnly) {
  files::TempDir folder;
  cluster_.PutBackup({"first,", " second"});
  EXPECT_EQ(Muster({"backup", folder.Path("copy.db")}), kDone);
  EXPECT_EQ(*files::ReadFile(folder.Path("copy.db")), "first, second");
  struct stat attributes;
  ASSERT_EQ(stat(folder.Path("copy.db").c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_mode & 0777, 0600);
}

TEST_F(CliTest, ABackupThatBreaksOffLeavesNothingAndReplacesNothing) {
  files::TempDir folder;
  ASSERT_TRUE(files::WriteAtomically(folder.Path("copy.db"), "older").ok());
  cluster_.PutBackup({"first,"}, {grpc::StatusCode::RESOURCE_EXHAUSTED, "disk is full"});
  EXPECT_EQ(Muster({"backup", folder.Path("copy.db")}), kOtherError);
  EXPECT_THAT(err(), HasSubstr("disk is full"));
  EXPECT_EQ(*files::ReadFile(folder.Path("copy.db")), "older");
  EXPECT_FALSE(std::filesystem::exists(folder.Path("copy.db.tmp")));
}

TEST_F(CliTest, DeleteForgetsAJobThatHasEndedAndNamesItsFiles) {
  Put("id: 'a' state: RUNNING");
  EXPECT_EQ(Muster({"delete", "a"}), kOtherError);
  EXPECT_THAT(err(), HasSubstr("stop it first"));
  Put(R"(id: 'a' state: FAILED exported_path: '/w.safetensors'
         checkpoints { step: 5 path: '/c/step-5' } checkpoints { step: 10 path: '/c/step-10' })");
  service_.LoseAnswers(1);
  EXPECT_EQ(Muster({"delete", "a"}), kDone);
  EXPECT_EQ(out(),
            "job a deleted; these files of the job stay:\n"
            "  checkpoint  step 5   /c/step-5\n"
            "  checkpoint  step 10  /c/step-10\n"
            "  weights              /w.safetensors\n");
  EXPECT_EQ(Muster({"get", "a"}), kNotFound);
  Put("id: 'b' state: CANCELLED");
  EXPECT_EQ(Muster({"delete", "b"}), kDone);
  EXPECT_EQ(out(), "job b deleted\n");
  Put("id: 'c' state: CANCELLED checkpoints { step: 5 }");
  EXPECT_EQ(Muster({"delete", "c", "-o", "json"}), kDone);
  v1::DeleteJobResponse response;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &response).ok()) << out();
  EXPECT_EQ(response.checkpoints(0).step(), 5);
}

TEST_F(CliTest, AJobThatIsDeletedWhileItIsWatchedIs102) {
  Put("id: 'a' state: STOPPING");
  std::thread other([this] {
    service_.AwaitWatches(1);
    service_.Remove("a");
  });
  EXPECT_EQ(Muster({"watch", "a"}), kNotFound);
  other.join();
  EXPECT_THAT(err(), HasSubstr("'a'"));
}

TEST_F(CliTest, TheHelpOfEveryCommandTellsItsOptions) {
  EXPECT_EQ(Muster({"--help"}), kDone);
  const std::string all = out();
  for (const char* command :
       {"run", "submit", "validate", "nodes", "list", "get", "ranks", "watch", "logs", "wait",
        "stop", "delete", "metrics", "retry", "drain", "cordon", "uncordon"}) {
    EXPECT_THAT(all, HasSubstr(std::string("\n  ") + command + " ")) << command;
    EXPECT_EQ(Muster({command, "--help"}), kDone);
    EXPECT_THAT(out(), AllOf(HasSubstr("--address ADDRESS"), HasSubstr("yaml"))) << command;
  }
  for (const char* command : {"run", "submit", "validate"}) {
    EXPECT_EQ(Muster({command, "--help"}), kDone);
    EXPECT_THAT(out(), AllOf(HasSubstr("--set KEY=VALUE"), HasSubstr("standard input"),
                             HasSubstr("relative to the")))
        << command;
  }
  for (const char* command : {"run", "submit", "watch", "logs", "wait", "stop", "delete", "metrics",
                              "retry", "drain", "cordon", "uncordon"}) {
    EXPECT_EQ(Muster({command, "--help"}), kDone);
    EXPECT_THAT(out(), HasSubstr("--retry-for")) << command;
  }
}

TEST_F(CliTest, PackAndCheckpointsNeedNoCoordinator) {
  environment_.erase("MUSTER_ADDRESS");
  EXPECT_EQ(Muster({"data", "pack", "--tokenizer", "bytes", "--out", folder_.Path("t.bin"),
                    folder_.Path("job.yaml")}),
            kDone);
  EXPECT_THAT(out(), HasSubstr("t.bin: "));
  EXPECT_EQ(Muster({"data", "pack", "--tokenizer", "bytes", "--out", folder_.Path("u.bin"),
                    folder_.Path("none")}),
            kOtherError);
  EXPECT_THAT(err(), HasSubstr("none"));
  EXPECT_EQ(Muster({"checkpoints", "verify", folder_.path()}), kOtherError);
  EXPECT_THAT(err(), HasSubstr("MANIFEST.json"));
}

TEST_F(CliTest, AFullDiskIsNoSuccess) {
  Put("id: 'a' state: RUNNING");
  out_.setstate(std::ios::badbit);
  for (const char* command : {"get", "watch"}) {
    EXPECT_EQ(Muster({command, "a"}), kOtherError) << command;
    EXPECT_THAT(err(), HasSubstr("cannot be written")) << command;
  }
}

}  // namespace
}  // namespace muster::cli
