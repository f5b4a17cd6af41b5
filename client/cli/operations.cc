#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/download.h"
#include "client/files/partial_file.h"
#include "client/cli/steer.h"
#include "client/cli/terminal/operation_text.h"
#include "common/status/status.h"
#include "proto/muster/v1/operation_service.pb.h"

namespace muster::cli {
namespace {

struct OperationOptions : SteeringOptions {
  std::string name;
  bool cancel = false;
  std::string download;
  bool overwrite = false;
};

absl::StatusOr<ExitCode> Operations(Console* console, client::MusterClient& client,
                                    const JobOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<v1::Operation> operations, client.Operations(options.job));
  if (IsDocument(options.output)) {
    v1::ListOperationsResponse all;
    all.mutable_operations()->Add(operations.begin(), operations.end());
    console->out << Document(all, options.output);
  } else if (operations.empty()) {
    console->err << "no operations\n";
  } else {
    console->out << OperationTable(operations, absl::Now());
  }
  return kDone;
}

// Receives the file of an operation of `gather-optimizer-state --download`.
absl::StatusOr<ExitCode> DownloadFile(Console* console, client::MusterClient& client,
                                      const OperationOptions& options) {
  ASSIGN_OR_RETURN(const v1::Operation operation, client.GetOperation(options.name));
  SteeringOptions waiting = options;
  waiting.wait = true;
  v1::Operation last;
  const ExitCode code = ShowOperation(console, client, waiting, operation, &last);
  if (code != kDone) return code;
  return Download(console, client, options, last, TargetOf(options.download, options.overwrite));
}

absl::StatusOr<ExitCode> ShowOrCancel(Console* console, client::MusterClient& client,
                                      const OperationOptions& options) {
  v1::CancelOperationRequest cancel;
  cancel.set_name(options.name);
  ASSIGN_OR_RETURN(const v1::Operation operation,
                   options.cancel ? client.Steer(&v1::OperationService::Stub::Cancel, cancel,
                                                 {.retry = {.retry_for = options.retry_for},
                                                  .requested_by = Requester(console)})
                                  : client.GetOperation(options.name));
  v1::Operation last;
  const ExitCode code = ShowOperation(console, client, options, operation, &last);
  // The command only shows the operation, so it succeeds for every outcome of the operation.
  if (!options.cancel && !options.wait) return kDone;
  if (!options.cancel || !last.done()) return code;
  // Done: the operation is cancelled as requested. Otherwise the cancellation came too late.
  return last.error().code() == "CANCELLED" ? kDone : kOtherError;
}

ExitCode Operation(Console* console, const OperationOptions& options) {
  if (options.download.empty()) return Call(console, options, ShowOrCancel);
  const DownloadTarget target = TargetOf(options.download, options.overwrite);
  const absl::Status bad = CheckNewFile(target.path, target.existing);
  return bad.ok() ? Call(console, options, DownloadFile) : FailWith(console, Message(bad));
}

}  // namespace

void AddOperations(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<JobOptions>();
  CLI::App* command =
      app->add_subcommand("operations", "List the operations on a running job and their results");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Call(console, *options, Operations); });
}

void AddOperation(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<OperationOptions>();
  CLI::App* command =
      app->add_subcommand("operation", "Show one operation, wait for it, or cancel it");
  command->add_option("OP", options->name, "Its name: JOB/NUMBER")->required();
  command->add_flag("--wait", options->wait, "Return when it is done (1: it failed)");
  AddDurationOption(command, "--timeout", &options->timeout,
                    "With --wait: wait at most this long (exit code 101)");
  CLI::Option* cancel =
      command->add_flag("--cancel", options->cancel,
                        "Cancel it if it has not taken effect, or if the files of an optimizer's "
                        "state or of a model that it writes are not complete");
  CLI::Option* download =
      command
          ->add_option("--download", options->download,
                       "Bring the file of `gather-optimizer-state --download` to this machine: "
                       "begins, or continues what was interrupted")
          ->type_name("FILE")
          ->excludes(cancel)
          ->check([](const std::string& path) {
            return path.empty() ? "FILE is empty; expected a path" : "";
          });
  command->add_flag("--overwrite", options->overwrite, "Replace FILE if it exists")
      ->needs(download);
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Operation(console, *options); });
}

}  // namespace muster::cli
