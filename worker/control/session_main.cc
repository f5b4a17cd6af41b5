// muster-session: runs job files with a worker's own code in one process, without coordinator,
// agents and network. The ranks are threads over comm/local. For tests of a session's input, also
// under a sanitizer.
//
// The end of each job is written to stderr: "FILE: done", "FILE: refused: ERROR" (an error of the
// job file) or "FILE: failed: ERROR" (an error of the job). The exit code is that of the last file
// that was not done, with the numbers of `muster run`: 0 done, 2 refused, 100 failed.
#include <google/protobuf/util/json_util.h>

#include <CLI/CLI.hpp>
#include <array>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobfile/check_files.h"
#include "common/jobfile/continued.h"
#include "common/jobfile/jobfile.h"
#include "common/status/status.h"
#include "worker/comm/local/local_group.h"
#include "worker/control/job_from_spec.h"
#include "worker/control/received.h"
#include "worker/train/session/session.h"

namespace muster {
namespace {

constexpr int kRefused = 2;
constexpr int kFailed = 100;

// A replacement for the coordinator: all commands exist from the start, and events are dropped.
// Only the error of a command is written to stderr.
class NoCoordinator : public train::CommandSource, public train::EventSink {
 public:
  explicit NoCoordinator(const std::vector<train::Command>* commands) : commands_(commands) {}
  int64_t Newest() const override { return static_cast<int64_t>(commands_->size()); }
  train::Command Get(int64_t number) const override { return (*commands_)[number - 1]; }
  void Report(const train::Event& event) override {
    const auto* finished = std::get_if<train::CommandFinished>(&event);
    if (finished == nullptr || finished->status.ok()) return;
    std::cerr << "command " << finished->number << ": " << Message(finished->status) << std::endl;
  }
  void Progress(int64_t, const char*, const char*) override {}

 private:
  const std::vector<train::Command>* const commands_;
};

// The inputs with which each job starts.
struct Inputs {
  std::string job_id = "job";
  std::vector<train::Command> commands;
  std::vector<std::string> checkpoints;  // checkpoints that count, newest first
};

// Reads one v1::Command in JSON from each line, and numbers the commands from 1.
absl::StatusOr<std::vector<train::Command>> ReadCommands(const std::string& path) {
  std::vector<train::Command> commands;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    v1::Command command;
    if (!google::protobuf::util::JsonStringToMessage(line, &command).ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": '", line, "' is no command"));
    }
    commands.push_back(control::CommandFromWire(command));
    commands.back().set_number(commands.size());
  }
  return commands;
}

// The communicators for control, gradients, parameters and files.
using Groups = std::array<std::unique_ptr<comm::Communicator>, 4>;

absl::Status RunRank(const train::Job& job, const Inputs& inputs, int rank, const Groups& groups) {
  NoCoordinator coordinator(&inputs.commands);
  const train::SessionParts parts{groups[0].get(),
                                  groups[1].get(),
                                  groups[2].get(),
                                  groups[3].get(),
                                  &coordinator,
                                  &coordinator,
                                  {.recorded = inputs.checkpoints}};
  const train::Identity identity{inputs.job_id, "instance", /*generation=*/1, rank, "incarnation"};
  ASSIGN_OR_RETURN(const auto session, train::Session::Create(identity, job, parts));
  return session->Run().status();
}

// Returns the first of the ranks' errors that is not the consequence of another error.
absl::Status Train(const train::Job& job, const Inputs& inputs, int world_size) {
  std::vector<Groups> of_ranks(world_size);
  for (size_t i = 0; i < std::tuple_size_v<Groups>; ++i) {
    auto group = comm::LocalGroup::Create(world_size);
    for (int rank = 0; rank < world_size; ++rank) of_ranks[rank][i] = std::move(group[rank]);
  }
  std::vector<absl::Status> ends(world_size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      // The communicators are destroyed at the rank's end, so that the other ranks do not wait for
      // this rank.
      const Groups own = std::move(of_ranks[rank]);
      ends[rank] = RunRank(job, inputs, rank, own);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  absl::Status cause;
  for (const absl::Status& end : ends) {
    if (end.ok()) continue;
    const bool consequence =
        train::Classify(end, train::Phase::kRun) == train::FailureKind::kConsequence;
    if (!consequence) return end;
    if (cause.ok()) cause = end;
  }
  return cause;
}

int RunFile(const std::string& path, const Inputs& inputs) {
  const auto end = [&path](const std::string& what, int code) {
    std::cerr << path << ": " << what << std::endl;
    return code;
  };
  const auto refused = [&end](const absl::Status& why) {
    return end(absl::StrCat("refused: ", Message(why)), kRefused);
  };
  const auto failed = [&end](const absl::Status& why) {
    return end(absl::StrCat("failed: ", Message(why)), kFailed);
  };
  const auto file = jobfile::LoadJobFile(path);
  if (!file.ok()) return refused(file.status());
  if (const auto problems = jobfile::CheckFiles(file->spec); problems.problems_size() > 0) {
    return refused(jobfile::ProblemsError(path, problems));
  }
  const auto job = control::JobFromSpec(jobfile::ContinueHere(file->spec).spec);
  if (!job.ok()) return failed(job.status());
  const absl::Status status = Train(*job, inputs, static_cast<int>(file->spec.world_size()));
  return status.ok() ? end("done", 0) : failed(status);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  std::vector<std::string> files;
  CLI::App app("Runs job files in this process, for tests");
  app.add_option("FILE", files, "job files")->required();
  std::string commands_file;
  muster::Inputs inputs;
  app.add_option("--job", inputs.job_id, "id of each of the jobs");
  app.add_option("--commands", commands_file, "commands for each of the jobs: one per line");
  app.add_option("--from", inputs.checkpoints, "checkpoint to start from, in the job's folder");
  CLI11_PARSE(app, argc, argv);
  absl::StatusOr<std::vector<muster::train::Command>> commands =
      std::vector<muster::train::Command>();
  if (!commands_file.empty()) commands = muster::ReadCommands(commands_file);
  if (!commands.ok()) {
    std::cerr << muster::Message(commands.status()) << std::endl;
    return muster::kRefused;
  }
  inputs.commands = *std::move(commands);
  int code = 0;
  for (const std::string& file : files) {
    if (const int end = muster::RunFile(file, inputs); end != 0) code = end;
  }
  return code;
}
