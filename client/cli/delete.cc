#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/table.h"

namespace muster::cli {
namespace {

std::string ToText(const v1::DeleteJobResponse& response) {
  Table files;
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    files.Add({"  checkpoint", absl::StrCat("step ", checkpoint.step()), checkpoint.path()});
  }
  if (!response.exported_path().empty()) files.Add({"  weights", "", response.exported_path()});
  return absl::StrCat("job ", response.job_id(), " deleted",
                      files.empty() ? "" : "; these files of the job stay:", "\n", files.Text());
}

ExitCode Delete(Console* console, const CommonOptions& options, const std::string& job_id) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto response = (*client)->Delete(job_id, {.retry_for = options.retry_for});
  if (!response.ok()) return Fail(console, response.status());
  console->out << (IsDocument(options.output) ? Document(*response, options.output)
                                              : ToText(*response));
  return kDone;
}

}  // namespace

void AddDelete(CLI::App* app, Console* console, ExitCode* code) {
  struct Options : CommonOptions {
    std::string job;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app->add_subcommand(
      "delete",
      "Remove a job that has ended, with its metrics and logs; its files stay and are listed");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Delete(console, *options, options->job); });
}

}  // namespace muster::cli
