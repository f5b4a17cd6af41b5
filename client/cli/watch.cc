#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/progress.h"

namespace muster::cli {
namespace {

ExitCode Watch(Console* console, const CommonOptions& options, const std::string& job_id) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  Progress progress(console->out_is_terminal ? ProgressForm::kTerminal : ProgressForm::kPlain,
                    absl::Seconds(5), console->columns);
  v1::Job last;
  const absl::Status status =
      (*client)->Watch(job_id, {.retry_for = options.retry_for}, [&](const v1::Job& job) {
        last = job;
        if (IsDocument(options.output)) {
          console->out << StreamItem(job, options.output) << std::flush;
        } else {
          PrintProgress(progress.Update(job, absl::Now()), &console->out);
        }
        return console->out.good();
      });
  console->out << progress.Interrupt() << std::flush;
  if (!status.ok()) return Fail(console, status);
  if (last.state() == v1::Job::FAILED) {
    console->err << "muster: job " << job_id << " failed: " << FailureText(last) << std::flush;
  }
  // It ended because stdout cannot be written, which RunCommandLine reports.
  if (!client::HasEnded(last.state())) return kDone;
  return ExitCodeOf(last.state());
}

}  // namespace

void AddWatch(CLI::App* app, Console* console, ExitCode* code) {
  struct Options : CommonOptions {
    std::string job;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app->add_subcommand(
      "watch", "Show a job as it changes, until it ends; the exit code says how");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Watch(console, *options, options->job); });
}

}  // namespace muster::cli
