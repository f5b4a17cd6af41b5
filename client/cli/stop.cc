#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/terminal/job_text.h"

namespace muster::cli {
namespace {

struct StopOptions : CommonOptions {
  std::string job;
  bool wait = false;
  std::optional<uint64_t> at_step;
};

ExitCode Stop(Console* console, const StopOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto job = (*client)->Stop(options.job, {.retry = {.retry_for = options.retry_for},
                                                 .at_step = options.at_step,
                                                 .requested_by = Requester(console)});
  if (!job.ok()) return Fail(console, job.status());
  if (!options.wait) {
    if (IsDocument(options.output)) {
      console->out << Document(*job, options.output);
    } else {
      console->out << "job " << job->id() << " " << StateName(job->state());
      if (options.at_step.has_value()) {
        console->out << ", stops once " << *options.at_step << " steps are done";
      }
      console->out << "\n";
    }
    return kDone;
  }
  const auto ended =
      FollowJob(console, client->get(), options.job, {.retry_for = options.retry_for});
  if (!ended.ok()) return Fail(console, ended.status());
  const ExitCode code = ReportEnd(console, *ended, options.output);
  // Stopped as requested.
  return code == kJobCancelled ? kDone : code;
}

}  // namespace

void AddStop(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<StopOptions>();
  CLI::App* command = app->add_subcommand(
      "stop", "End a job at its next step, with a checkpoint if it writes them");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddAtStepOption(command, &options->at_step);
  command->add_flag("--wait", options->wait, "Return when it has ended (0: stopped as asked)");
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Stop(console, *options); });
}

}  // namespace muster::cli
