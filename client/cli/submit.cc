#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"

namespace muster::cli {
namespace {

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
  for (const std::string& warning : job->warnings()) console->err << "warning: " << warning << "\n";
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
  const auto ended = FollowJob(console, client->get(), job->id(), {.retry_for = options.retry_for});
  if (!ended.ok()) return Fail(console, ended.status());
  return ReportEnd(console, *ended, options.output);
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

}  // namespace muster::cli
