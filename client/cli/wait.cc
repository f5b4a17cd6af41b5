#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"

namespace muster::cli {
namespace {

struct WaitOptions : CommonOptions {
  std::string job;
  absl::Duration timeout = absl::InfiniteDuration();
};

ExitCode Wait(Console* console, const WaitOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto job =
      (*client)->Wait(options.job, {.retry_for = options.retry_for, .timeout = options.timeout});
  if (absl::IsDeadlineExceeded(job.status())) {
    return FailWith(console,
                    absl::StrCat("job ", options.job, " has not ended after ",
                                 absl::FormatDuration(options.timeout)),
                    kTimedOut);
  }
  if (!job.ok()) return Fail(console, job.status());
  return ReportEnd(console, *job, options.output);
}

}  // namespace

void AddWait(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<WaitOptions>();
  CLI::App* command =
      app->add_subcommand("wait", "Wait until a job has ended; the exit code says how");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddDurationOption(command, "--timeout", &options->timeout,
                    "Wait at most this long (exit code 101)");
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Wait(console, *options); });
}

}  // namespace muster::cli
