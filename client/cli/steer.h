// Code for the commands that change a running job. They print the operation, or follow it until its
// end.
#ifndef MUSTER_CLIENT_CLI_STEER_H_
#define MUSTER_CLIENT_CLI_STEER_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/cli/command.h"

namespace muster::cli {

struct SteeringOptions : CommonOptions {
  std::string job;
  bool wait = false;
  absl::Duration timeout = absl::InfiniteDuration();
  std::optional<uint64_t> at_step;
};

// Requests the change.
using Change = std::function<absl::StatusOr<v1::Operation>(
    client::MusterClient& client, const std::string& job, const client::SteerOptions& options)>;

// Adds JOB, --wait, --timeout, --at-step where `schedulable`, and the common options.
void AddSteeringOptions(CLI::App* command, Console* console, SteeringOptions* options,
                        bool schedulable = true);
// Requests the change and shows the operation. `last`: see ShowOperation.
ExitCode Steer(Console* console, const SteeringOptions& options, const Change& change,
               v1::Operation* last = nullptr);

// Requests the change by a call with `request`, to which the job is added.
template <typename Stub, typename Request>
ExitCode Steer(Console* console, const SteeringOptions& options,
               client::Connection::Unary<Stub, Request, v1::Operation> rpc, Request request,
               v1::Operation* last = nullptr) {
  return Steer(
      console, options,
      [&](client::MusterClient& client, const std::string& job, const client::SteerOptions& steer) {
        request.set_job_id(job);
        return client.Steer(rpc, request, steer);
      },
      last);
}

// Waits, with --wait, until the operation is done, and replaces *operation by the result. Any code
// but kDone means that the result is not known; the reason is printed then.
ExitCode AwaitEnd(Console* console, client::MusterClient& client, const SteeringOptions& options,
                  v1::Operation* operation);
// Prints an operation; with --wait, waits until it is done first. Returns 1 if the operation
// failed, 101 if it is not done in time. `last`: the operation that was printed; may be null.
ExitCode ShowOperation(Console* console, client::MusterClient& client,
                       const SteeringOptions& options, v1::Operation operation,
                       v1::Operation* last = nullptr);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_STEER_H_
