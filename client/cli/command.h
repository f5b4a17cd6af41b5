// Code that the commands of `muster` share: options, the address of the coordinator, and the output
// of errors.
#ifndef MUSTER_CLIENT_CLI_COMMAND_H_
#define MUSTER_CLIENT_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/api/client.h"
#include "client/cli/terminal/console.h"
#include "client/cli/terminal/exit_code.h"
#include "client/cli/terminal/output.h"
#include "common/certs/tls_files.h"
#include "common/jobfile/jobfile.h"

namespace muster::cli {

struct CommonOptions {
  // The value of --address, or else of $MUSTER_ADDRESS; may be empty.
  std::string address;
  // The state directory of the coordinator if there is no address; may be empty.
  std::string default_state;
  certs::TlsFiles tls;
  Output output = Output::kTable;
  // The time for which a call is tried again while the connection is broken.
  absl::Duration retry_for = absl::Seconds(30);
};

// Options of a command about one job.
struct JobOptions : CommonOptions {
  std::string job;
};

// A job file and the overrides for it.
struct JobFileOptions {
  // "-": standard input.
  std::string file;
  // The values of --set, in order.
  std::vector<std::string> settings;

  // The absolute path of the file. Empty for standard input, and if the path is not UTF-8.
  std::string Path() const;
};

// Adds FILE and --set.
void AddJobFileOptions(CLI::App* command, JobFileOptions* options);
// Adds -o (with csv if `with_csv`).
void AddOutputOption(CLI::App* command, CommonOptions* options, bool with_csv = false);
// Adds --address, and -o (with csv if `with_csv`).
void AddCommonOptions(CLI::App* command, Console* console, CommonOptions* options,
                      bool with_csv = false);
// Adds --retry-for to commands that follow or change a job.
void AddRetryOption(CLI::App* command, CommonOptions* options);
// Adds an option with a duration such as "60s" or "1m30s".
void AddDurationOption(CLI::App* command, const std::string& name, absl::Duration* value,
                       const std::string& help);
// Adds an option with a duration and without a default.
void AddDurationOption(CLI::App* command, const std::string& name,
                       std::optional<absl::Duration>* value, const std::string& help);

// Adds --at-step to commands that change a running job.
void AddAtStepOption(CLI::App* command, std::optional<uint64_t>* at_step);
// The absolute form of a path, without a '/' at its end. Empty for an empty path.
std::string AbsolutePath(const std::string& path);
inline constexpr char kOutIsEmpty[] = "--out is empty; expected a path";

// The user of this program, for the history of jobs: "user@host".
std::string Requester(Console* console);

// Makes a client of the coordinator. INVALID_ARGUMENT: there is no address; the message says what
// to do.
absl::StatusOr<std::unique_ptr<client::MusterClient>> Connect(const CommonOptions& options);

// Prints the error of a call to a coordinator and returns its exit code.
ExitCode Fail(Console* console, const absl::Status& status);
// Connects, calls `run` and returns its exit code. Prints errors of both as Fail does.
template <typename Options>
ExitCode Call(Console* console, const Options& options,
              std::type_identity_t<absl::StatusOr<ExitCode> (*)(Console*, client::MusterClient&,
                                                                const Options&)>
                  run) {
  const auto client = Connect(options);
  const auto ran = client.ok() ? run(console, **client, options) : client.status();
  return ran.ok() ? *ran : Fail(console, ran.status());
}
// Prints an error that does not come from a coordinator. Returns exit code 1 unless another one is
// given.
ExitCode FailWith(Console* console, const std::string& message, ExitCode code = kOtherError);

// Reads the job file. Errors: those of jobfile::LoadJobFile.
absl::StatusOr<jobfile::JobFile> Load(Console* console, const JobFileOptions& options);
// Reads the job file. Prints why a file is refused, and returns null for it.
std::unique_ptr<jobfile::JobFile> LoadOrExplain(Console* console, const JobFileOptions& options);
// Prints why a job was refused (a status with SpecProblems), with the lines of its file. Prints
// other errors as Fail does.
ExitCode FailSubmission(Console* console, const absl::Status& status, const jobfile::JobFile& file);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_COMMAND_H_
