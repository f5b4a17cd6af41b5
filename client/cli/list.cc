#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"
#include "common/jobfile/near_name.h"

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

// What is wrong with a state's name; empty when nothing is.
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

ExitCode List(Console* console, const ListCommandOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto jobs = (*client)->List(options.list);
  if (!jobs.ok()) return Fail(console, jobs.status());
  if (IsDocument(options.output)) {
    console->out << Document(*jobs, options.output);
    return kDone;
  }
  if (jobs->jobs().empty()) {
    console->err << "no jobs\n";
  } else {
    console->out << JobTable({jobs->jobs().begin(), jobs->jobs().end()}, absl::Now());
  }
  for (const v1::Job& job : jobs->jobs()) {
    for (const std::string& warning : job.warnings()) {
      console->err << "warning: " << job.id() << " " << warning << "\n";
    }
  }
  if (!jobs->next_page_token().empty()) {
    console->err << "there are more: continue with --page-token " << jobs->next_page_token()
                 << "\n";
  }
  return kDone;
}

}  // namespace

void AddList(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<ListCommandOptions>();
  CLI::App* command = app->add_subcommand("list", "Jobs, newest first");
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
  command->callback([=] { *code = List(console, *options); });
}

}  // namespace muster::cli
