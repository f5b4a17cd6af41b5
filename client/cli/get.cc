#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"

namespace muster::cli {
namespace {

ExitCode Get(Console* console, const CommonOptions& options, const std::string& job_id) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto job = (*client)->Get(job_id);
  if (!job.ok()) return Fail(console, job.status());
  console->out << (IsDocument(options.output) ? Document(*job, options.output)
                                              : JobDetails(*job, absl::Now()));
  return kDone;
}

}  // namespace

void AddGet(CLI::App* app, Console* console, ExitCode* code) {
  struct Options : CommonOptions {
    std::string job;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app->add_subcommand("get", "Show a job as it is now: state, ranks, checkpoints, failure");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Get(console, *options, options->job); });
}

}  // namespace muster::cli
