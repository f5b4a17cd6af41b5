// The commands list, get, ranks: the present state of jobs.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/output.h"
#include "common/jobfile/near_name.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

struct ListCommandOptions : CommonOptions {
  client::ListOptions list;
};

std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  const auto* type = v1::Job::State_descriptor();
  for (int i = 0; i < type->value_count(); ++i) {
    if (type->value(i)->number() != 0) names.push_back(type->value(i)->name());
  }
  return names;
}

// The problem with a state's name; empty if there is none.
std::string CheckState(const std::string& name) {
  v1::Job::State state;
  if (v1::Job::State_Parse(absl::AsciiStrToUpper(name), &state) &&
      state != v1::Job::STATE_UNSPECIFIED) {
    return "";
  }
  const std::string near = jobfile::NearName(name, StateNames());
  return absl::StrCat("'", name, "' is not a state",
                      near.empty() ? "" : absl::StrCat("; did you mean ", near, "?"),
                      "; allowed: ", absl::StrJoin(StateNames(), ", "));
}

absl::StatusOr<ExitCode> List(Console* console, client::MusterClient& client,
                              const ListCommandOptions& options) {
  ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, client.List(options.list));
  if (IsDocument(options.output)) {
    console->out << Document(jobs, options.output);
    return kDone;
  }
  if (jobs.jobs().empty()) {
    console->err << "no jobs\n";
  } else {
    console->out << JobTable({jobs.jobs().begin(), jobs.jobs().end()}, absl::Now());
  }
  for (const v1::Job& job : jobs.jobs()) {
    for (const std::string& warning : job.warnings()) {
      console->err << "warning: " << job.id() << " " << warning << "\n";
    }
  }
  if (!jobs.next_page_token().empty()) {
    console->err << "there are more: continue with --page-token " << jobs.next_page_token() << "\n";
  }
  return kDone;
}

absl::StatusOr<ExitCode> Get(Console* console, client::MusterClient& client,
                             const JobOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job job, client.Get(options.job));
  console->out << (IsDocument(options.output) ? Document(job, options.output)
                                              : JobDetails(job, absl::Now()));
  return kDone;
}

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

absl::StatusOr<ExitCode> Ranks(Console* console, client::MusterClient& client,
                               const JobOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job job, client.Get(options.job));
  if (IsDocument(options.output)) {
    console->out << Document(RanksJson(job), options.output);
  } else if (job.ranks().empty()) {
    console->err << "job " << job.id() << " is " << StateName(job.state())
                 << " and has no ranks yet: " << job.state_reason() << "\n";
  } else {
    console->out << RankTable(job, absl::Now());
    for (const std::string& table : {CollectivesTable(job), MemoryTable(job)}) {
      if (!table.empty()) console->out << "\n" << table;
    }
  }
  return kDone;
}

}  // namespace

void AddList(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<ListCommandOptions>();
  CLI::App* command = app->add_subcommand("list", "List the jobs, newest first");
  command
      ->add_option_function<std::vector<std::string>>(
          "--state",
          [options](const std::vector<std::string>& names) {
            for (const std::string& name : names) {
              v1::Job::State state = v1::Job::STATE_UNSPECIFIED;
              v1::Job::State_Parse(absl::AsciiStrToUpper(name), &state);
              options->list.states.push_back(state);
            }
          },
          absl::StrCat("Only jobs in this state; may be given several times: ",
                       absl::StrJoin(StateNames(), ", ")))
      ->check(CheckState)
      ->allow_extra_args(false)
      ->type_name("STATE");
  command
      ->add_option_function<int>(
          "--limit", [options](int limit) { options->list.limit = limit; },
          "List at most this many (default: all); stderr then says how to continue")
      ->check(CLI::Range(1, 1000000000))
      ->type_name("N");
  command
      ->add_option("--page-token", options->list.page_token,
                   "Continue after the page that gave this token")
      ->type_name("TOKEN");
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Call(console, *options, List); });
}

void AddGet(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<JobOptions>();
  CLI::App* command =
      app->add_subcommand("get", "Show a job as it is now: state, ranks, checkpoints, failure");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Call(console, *options, Get); });
}

void AddRanks(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<JobOptions>();
  CLI::App* command =
      app->add_subcommand("ranks",
                          "Show the ranks of a job's newest generation: where they run, "
                          "what they do, their collectives and memory");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Call(console, *options, Ranks); });
}

}  // namespace muster::cli
