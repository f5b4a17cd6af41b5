// A coordinator as a C++ object: JobService, ControlService, OperationService and ClusterService
// (proto/muster/v1/*_service.proto) over gRPC. Prints nothing. Errors are the errors of the
// service, with their reasons (common/rpc/error.h), and the errors of connection.h. A call without
// a function here uses the method of its stub: client.Read(&v1::ClusterService::Stub::ListNodes,
// {}).
#ifndef MUSTER_CLIENT_API_CLIENT_H_
#define MUSTER_CLIENT_API_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/api/connection.h"
#include "common/certs/tls_files.h"
#include "proto/muster/v1/cluster_service.grpc.pb.h"
#include "proto/muster/v1/control_service.grpc.pb.h"
#include "proto/muster/v1/job_service.grpc.pb.h"
#include "proto/muster/v1/operation.pb.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"

namespace muster::client {

// Changes that the next attempt of a job makes to the job.
struct RetrySettings {
  // Settings such as "optimizer.adamw.lr=1e-4", applied in this order.
  std::vector<std::string> settings;
  // The absolute path of the folder to which relative paths in `settings` are relative.
  std::string settings_folder;
  // The step of the checkpoint with which the attempt begins. Absent: the newest checkpoint that
  // counts.
  std::optional<uint64_t> from_step;
};

// The jobs to list.
struct ListOptions {
  // The states of the jobs; empty: all states.
  std::vector<v1::Job::State> states;
  // The largest number of jobs; absent: no limit.
  std::optional<int> limit;
  // The next_page_token of another list, after which this list continues.
  std::string page_token;
};

// Returns true for the terminal states SUCCEEDED, FAILED and CANCELLED.
bool HasEnded(v1::Job::State state);

// Thread-safe. Calls block.
class MusterClient : public Connection {
 public:
  using Connection::Connection;

  // Makes a client, which connects with its first call. `address` is "HOST:PORT" or "unix:/PATH".
  // `tls`: the files of this program for TLS over TCP. INVALID_ARGUMENT: `address` has neither
  // form. Other errors are the errors of ClientTls.
  static absl::StatusOr<std::unique_ptr<MusterClient>> Connect(const std::string& address,
                                                               const certs::TlsFiles& tls = {});

  // Submits a job. `job_id` may be empty. `job_file`: the absolute path of the job file; empty:
  // there is no file. Each call that changes something gets a new request id.
  absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& job_id,
                                 const RetryOptions& options = {},
                                 const std::string& job_file = "");
  absl::StatusOr<v1::Job> Get(const std::string& job_id);
  // Returns jobs, newest first, requested in pages. The result's next_page_token is set if there
  // are more than `limit` jobs.
  absl::StatusOr<v1::ListJobsResponse> List(const ListOptions& options = {});
  absl::StatusOr<v1::Job> Stop(const std::string& job_id, const SteerOptions& options = {});
  // Starts the next attempt of a job that FAILED or was CANCELLED. at_step is not used.
  absl::StatusOr<v1::Job> Retry(const std::string& job_id, const SteerOptions& options = {},
                                const RetrySettings& settings = {});
  absl::StatusOr<v1::DeleteJobResponse> Delete(const std::string& job_id,
                                               const RetryOptions& options = {});

  // `name` is "JOB/NUMBER".
  absl::StatusOr<v1::Operation> GetOperation(const std::string& name);
  // Returns the operations of the job, oldest first, requested in pages.
  absl::StatusOr<std::vector<v1::Operation>> Operations(const std::string& job_id);
  // Waits until the operation is done, even if the connection breaks. DEADLINE_EXCEEDED: the
  // operation is not done in time.
  absl::StatusOr<v1::Operation> WaitOperation(const std::string& name,
                                              const StreamOptions& options);

  // Receives the file that an operation wrote for this client, from `offset` on. `take` gets the
  // pieces in order and without gaps; an error of `take` ends the call. Continues after a broken
  // connection. Returns the hash of the whole file (common/files/hash.h). Errors: those of
  // OperationService.Download; DATA_LOSS: the pieces do not follow one another.
  absl::StatusOr<std::string> Download(const std::string& name, uint64_t offset,
                                       const StreamOptions& options,
                                       const std::function<absl::Status(const std::string&)>& take);

  // Calls `changed` with the job's present state, and again after each change. Ends when the job
  // has ended or `changed` returns false. Continues after a broken connection: no state is given
  // twice, and the last state is never lost.
  absl::Status Watch(const std::string& job_id, const StreamOptions& options,
                     const std::function<bool(const v1::Job&)>& changed);
  // Watches until the job has ended, and returns its last state. DEADLINE_EXCEEDED: the job has not
  // ended in time.
  absl::StatusOr<v1::Job> Wait(const std::string& job_id, const StreamOptions& options);

  // Gives the job's stored log lines; with `follow` also later lines, until the job ends. Continues
  // after a broken connection.
  absl::Status Logs(const std::string& job_id, std::optional<uint32_t> rank, bool follow,
                    const StreamOptions& options,
                    const std::function<void(const v1::LogLine&)>& line);
  // Gives the stored measurements of the job's steps and validation passes; with `follow` also
  // later ones, until the job ends. Continues after a broken connection: every entry is given
  // exactly once.
  absl::Status Metrics(const std::string& job_id, bool follow, const StreamOptions& options,
                       const std::function<void(const v1::StepMetrics&)>& entry);
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_CLIENT_H_
