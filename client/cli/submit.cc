// The commands submit, stop, retry, delete: the beginning and the end of a job.
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/output.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

// Shows the job's progress until its end, and how the job ended.
absl::StatusOr<ExitCode> AwaitJob(Console* console, client::MusterClient& client,
                                  const std::string& job_id, const CommonOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job ended,
                   FollowJob(console, &client, job_id, {.retry_for = options.retry_for}));
  return ReportEnd(console, ended, options.output);
}

struct SubmitOptions : CommonOptions, JobFileOptions {
  std::string id;
  bool wait = false;
};

ExitCode Submit(Console* console, const SubmitOptions& options) {
  const auto file = LoadOrExplain(console, options);
  if (file == nullptr) return kUsage;
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto job =
      (*client)->Submit(file->spec, options.id, {.retry_for = options.retry_for}, options.Path());
  if (!job.ok()) return FailSubmission(console, job.status(), *file);
  for (const std::string& warning : job->warnings()) {
    console->err << "warning: " << job->id() << " " << warning << "\n";
  }
  if (!options.wait) {
    if (IsDocument(options.output)) {
      console->out << Document(*job, options.output);
    } else {
      console->out << job->id() << "\n";
      console->err << "submitted; `muster watch " << job->id() << "` shows it\n";
    }
    return kDone;
  }
  if (options.output == Output::kTable) console->out << job->id() << std::endl;
  const auto ended = AwaitJob(console, **client, job->id(), options);
  return ended.ok() ? *ended : Fail(console, ended.status());
}

struct StopOptions : JobOptions {
  bool wait = false;
  std::optional<uint64_t> at_step;
};

absl::StatusOr<ExitCode> Stop(Console* console, client::MusterClient& client,
                              const StopOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job job,
                   client.Stop(options.job, {.retry = {.retry_for = options.retry_for},
                                             .at_step = options.at_step,
                                             .requested_by = Requester(console)}));
  if (options.wait) {
    ASSIGN_OR_RETURN(const ExitCode code, AwaitJob(console, client, options.job, options));
    // The job is stopped as requested.
    return code == kJobCancelled ? kDone : code;
  }
  if (IsDocument(options.output)) {
    console->out << Document(job, options.output);
  } else {
    console->out << "job " << job.id() << " " << StateName(job.state());
    if (options.at_step.has_value()) {
      console->out << ", stops after step " << *options.at_step;
    }
    console->out << "\n";
  }
  return kDone;
}

struct RetryOptions : JobOptions {
  bool wait = false;
  client::RetrySettings next;
};

absl::StatusOr<ExitCode> Retry(Console* console, client::MusterClient& client,
                               const RetryOptions& options) {
  client::RetrySettings next = options.next;
  if (!next.settings.empty()) next.settings_folder = AbsolutePath(".");
  const auto job = client.Retry(
      options.job, {.retry = {.retry_for = options.retry_for}, .requested_by = Requester(console)},
      next);
  if (!job.ok()) {
    const v1::SpecProblems problems = Problems(job.status());
    if (problems.problems().empty()) return job.status();
    return FailWith(console,
                    absl::StrCat("job ", options.job, " is not retried:\n",
                                 jobspec::FormatProblems(problems),
                                 "what is fixed may change in a new job that begins with this "
                                 "one's checkpoint (start.checkpoint)"),
                    kUsage);
  }
  if (options.wait) return AwaitJob(console, client, options.job, options);
  if (IsDocument(options.output)) {
    console->out << Document(*job, options.output);
  } else {
    console->out << "job " << job->id() << " " << StateName(job->state()) << ", attempt "
                 << job->attempt() << "\n"
                 << SettingChanges(*job, job->attempt());
  }
  return kDone;
}

std::string ToText(const v1::DeleteJobResponse& response) {
  Table files;
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    files.Add({"  checkpoint", absl::StrCat("step ", checkpoint.step()), checkpoint.path()});
  }
  if (!response.exported_path().empty()) files.Add({"  weights", "", response.exported_path()});
  return absl::StrCat("job ", response.job_id(), " deleted",
                      files.empty() ? "" : "; these files of the job stay:", "\n", files.Text());
}

absl::StatusOr<ExitCode> Delete(Console* console, client::MusterClient& client,
                                const JobOptions& options) {
  ASSIGN_OR_RETURN(const v1::DeleteJobResponse response,
                   client.Delete(options.job, {.retry_for = options.retry_for}));
  console->out << (IsDocument(options.output) ? Document(response, options.output)
                                              : ToText(response));
  return kDone;
}

}  // namespace

void AddSubmit(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* command =
      app->add_subcommand("submit", "Submit a job to a coordinator and print its id");
  AddJobFileOptions(command, options.get());
  command->add_option("--id", options->id, "The job's id, [a-z0-9-]; default: made from its name")
      ->type_name("ID");
  command->add_flag("--wait", options->wait,
                    "Show its progress until it ends; the exit code says how");
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Submit(console, *options); });
}

void AddStop(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<StopOptions>();
  CLI::App* command = app->add_subcommand(
      "stop", "End a job at its next step, with a checkpoint if it writes them");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddAtStepOption(command, &options->at_step);
  command->add_flag("--wait", options->wait, "Return when it has ended (0: stopped as asked)");
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Call(console, *options, Stop); });
}

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
  command->callback([=] { *code = Call(console, *options, Retry); });
}

void AddDelete(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<JobOptions>();
  CLI::App* command = app->add_subcommand(
      "delete",
      "Remove a job that has ended, with its metrics and logs; its files stay and are listed");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Call(console, *options, Delete); });
}

}  // namespace muster::cli
