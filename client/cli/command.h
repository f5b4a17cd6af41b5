// What the commands of `muster` have in common: options, the coordinator they talk to, how errors
// are told.
#ifndef MUSTER_CLIENT_CLI_COMMAND_H_
#define MUSTER_CLIENT_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/api/client.h"
#include "client/cli/terminal/console.h"
#include "client/cli/terminal/exit_code.h"
#include "client/cli/terminal/output.h"
#include "common/jobfile/jobfile.h"

namespace muster::cli {

struct CommonOptions {
  // Of --address, else of $MUSTER_ADDRESS; may be empty.
  std::string address;
  Output output = Output::kTable;
  // How long a broken connection is tried again.
  absl::Duration retry_for = absl::Seconds(30);
};

// A job file and what is changed in it.
struct JobFileOptions {
  // "-": standard input.
  std::string file;
  // Of --set, in their order.
  std::vector<std::string> settings;
};

// Adds FILE and --set.
void AddJobFileOptions(CLI::App* command, JobFileOptions* options);
// Adds -o (with csv where `with_csv`).
void AddOutputOption(CLI::App* command, CommonOptions* options, bool with_csv = false);
// Adds --address, and -o (with csv where `with_csv`).
void AddCommonOptions(CLI::App* command, Console* console, CommonOptions* options,
                      bool with_csv = false);
// Adds --retry-for to commands that follow or change a job.
void AddRetryOption(CLI::App* command, CommonOptions* options);
// An option that takes "60s", "1m30s".
void AddDurationOption(CLI::App* command, const std::string& name, absl::Duration* value,
                       const std::string& help);
// The same of one without a default.
void AddDurationOption(CLI::App* command, const std::string& name,
                       std::optional<absl::Duration>* value, const std::string& help);

// Adds --at-step to commands that change a running job.
void AddAtStepOption(CLI::App* command, std::optional<uint64_t>* at_step);
// Who uses this program, for the history of jobs: "user@host".
std::string Requester(Console* console);

// INVALID_ARGUMENT without an address, saying what to do.
absl::StatusOr<std::unique_ptr<client::MusterClient>> Connect(const CommonOptions& options);

// Tells the error of a call to a coordinator and gives its exit code.
ExitCode Fail(Console* console, const absl::Status& status);
// Tells an error that has nothing to do with a coordinator; exit code 1 unless another is given.
ExitCode FailWith(Console* console, const std::string& message, ExitCode code = kOtherError);

// Reads the job file. Errors: those of jobfile::LoadJobFile.
absl::StatusOr<jobfile::JobFile> Load(Console* console, const JobFileOptions& options);
// The same; where it is refused, tells why and gives nothing.
std::unique_ptr<jobfile::JobFile> LoadOrExplain(Console* console, const JobFileOptions& options);
// Tells that a job was refused (status with SpecProblems), with the lines of its file; other errors
// as Fail.
ExitCode FailSubmission(Console* console, const absl::Status& status, const jobfile::JobFile& file);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_COMMAND_H_
