#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/job_text.h"
#include "client/cli/json.h"

namespace muster::cli {
namespace {

ExitCode List(Console* console, const CommonOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto jobs = (*client)->List();
  if (!jobs.ok()) return Fail(console, jobs.status());
  if (options.output == Output::kJson) {
    v1::ListJobsResponse response;
    for (const v1::Job& job : *jobs) *response.add_jobs() = job;
    console->out << Json(response, JsonForm::kPretty);
  } else if (jobs->empty()) {
    console->err << "no jobs\n";
  } else {
    console->out << JobTable(*jobs, absl::Now());
  }
  return kDone;
}

}  // namespace

void AddList(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command = app->add_subcommand("list", "All jobs, newest first");
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = List(console, *options); });
}

}  // namespace muster::cli
