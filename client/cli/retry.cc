#include <memory>
#include <string>

#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/terminal/job_text.h"

namespace muster::cli {
namespace {

struct RetryOptions : CommonOptions {
  std::string job;
  bool wait = false;
};

ExitCode Retry(Console* console, const RetryOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto job = (*client)->Retry(
      options.job, {.retry = {.retry_for = options.retry_for}, .requested_by = Requester(console)});
  if (!job.ok()) return Fail(console, job.status());
  if (options.wait) {
    const auto ended =
        FollowJob(console, client->get(), options.job, {.retry_for = options.retry_for});
    if (!ended.ok()) return Fail(console, ended.status());
    return ReportEnd(console, *ended, options.output);
  }
  if (IsDocument(options.output)) {
    console->out << Document(*job, options.output);
  } else {
    console->out << "job " << job->id() << " " << StateName(job->state()) << ", attempt "
                 << job->attempt() << "\n";
  }
  return kDone;
}

}  // namespace

void AddRetry(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<RetryOptions>();
  CLI::App* command = app->add_subcommand(
      "retry",
      "Continue a job that failed or was stopped from its newest checkpoint, as its next attempt");
  command->add_option("JOB", options->job, "The job's id")->required();
  command->add_flag("--wait", options->wait, "Return when it has ended again");
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Retry(console, *options); });
}

}  // namespace muster::cli
