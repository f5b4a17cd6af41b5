#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/terminal/job_text.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/error.h"

namespace muster::cli {
namespace {

struct RetryOptions : CommonOptions {
  std::string job;
  bool wait = false;
  client::RetrySettings next;
};

ExitCode Retry(Console* console, const RetryOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  client::RetrySettings next = options.next;
  if (!next.settings.empty()) next.settings_folder = AbsolutePath(".");
  const auto job = (*client)->Retry(
      options.job, {.retry = {.retry_for = options.retry_for}, .requested_by = Requester(console)},
      next);
  if (!job.ok()) {
    const v1::SpecProblems problems = Problems(job.status());
    if (problems.problems().empty()) return Fail(console, job.status());
    return FailWith(console,
                    absl::StrCat("job ", options.job, " is not retried:\n",
                                 jobspec::FormatProblems(problems),
                                 "what is fixed may change in a new job that begins with this "
                                 "one's checkpoint (start.checkpoint)"),
                    kUsage);
  }
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
                 << job->attempt() << "\n"
                 << SettingChanges(*job, job->attempt());
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
  command
      ->add_option("--set", options->next.settings,
                   "Another value for a setting of the job file, from this attempt on: KEY=VALUE, "
                   "such as optimizer.adamw.lr=1e-4; may be given several times")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--from", options->next.from_step,
                   "Begin with the checkpoint of this step (0: from the beginning)")
      ->type_name("STEP");
  command->add_flag("--wait", options->wait, "Return when it has ended again");
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Retry(console, *options); });
}

}  // namespace muster::cli
