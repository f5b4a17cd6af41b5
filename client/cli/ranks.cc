#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/json.h"

namespace muster::cli {
namespace {

// The part of the job's document that is about its ranks.
std::string RanksJson(const v1::Job& job) {
  const auto all = nlohmann::ordered_json::parse(Json(job, JsonForm::kLine));
  nlohmann::ordered_json part;
  part["job_id"] = all["id"];
  for (const char* name :
       {"state", "generation", "world_size", "active_ranks", "joined_ranks", "ranks"}) {
    part[name] = all[name];
  }
  return part.dump(2) + "\n";
}

ExitCode Ranks(Console* console, const CommonOptions& options, const std::string& job_id) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto job = (*client)->Get(job_id);
  if (!job.ok()) return Fail(console, job.status());
  if (IsDocument(options.output)) {
    console->out << Document(RanksJson(*job), options.output);
  } else if (job->ranks().empty()) {
    console->err << "job " << job->id() << " is " << StateName(job->state())
                 << " and has no ranks yet: " << job->state_reason() << "\n";
  } else {
    console->out << RankTable(*job, absl::Now());
    for (const std::string& table : {CollectivesTable(*job), MemoryTable(*job)}) {
      if (!table.empty()) console->out << "\n" << table;
    }
  }
  return kDone;
}

}  // namespace

void AddRanks(CLI::App* app, Console* console, ExitCode* code) {
  struct Options : CommonOptions {
    std::string job;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app->add_subcommand("ranks",
                          "Show the ranks of a job's newest generation: where they run, "
                          "what they do, their collectives and memory");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Ranks(console, *options, options->job); });
}

}  // namespace muster::cli
