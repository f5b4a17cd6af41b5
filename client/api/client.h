// A coordinator as a C++ object: JobService, ControlService, OperationService and ClusterService
// (proto/muster/v1/*_service.proto) without gRPC. It prints nothing. Errors are those of the
// service, with their reasons (common/rpc/error.h). In addition every call may return:
// - UNAVAILABLE: the coordinator cannot be reached, or does not answer in time; the message has its
//   address.
// - CANCELLED: the caller's Cancellation ended the call.
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
#include "client/api/cancellation.h"
#include "proto/muster/v1/cluster_service.pb.h"
#include "proto/muster/v1/control_service.pb.h"
#include "proto/muster/v1/job_service.pb.h"
#include "proto/muster/v1/operation.pb.h"

namespace muster::client {

// How long a call that follows a job tries to continue. If the coordinator cannot be reached at the
// start, the call fails at once.
struct StreamOptions {
  // After a broken connection: how long to try again before the call fails with UNAVAILABLE.
  absl::Duration retry_for = absl::Seconds(30);
  // Counted from the start of the call; then the call ends with DEADLINE_EXCEEDED. Changes of the
  // system's date have no effect on it.
  absl::Duration timeout = absl::InfiniteDuration();
  // May be null. Must outlive the call.
  Cancellation* cancellation = nullptr;
};

// How long a call that changes something is repeated if the connection breaks. It is repeated with
// the same request id, so that it acts exactly once in all cases. If the coordinator cannot be
// reached at the start, the call fails at once.
struct RetryOptions {
  absl::Duration retry_for = absl::Seconds(30);
  // May be null. Must outlive the call.
  Cancellation* cancellation = nullptr;
};

// A change of a running job.
struct SteerOptions {
  RetryOptions retry;
  // Wait until this many optimizer steps are done; absent: do not wait.
  std::optional<uint64_t> at_step;
  // Who asks, for the job's history.
  std::string requested_by;
};

// From where a job without processes continues; if neither is set, from its newest checkpoint.
struct StartOptions {
  // At step 0, whatever checkpoints there are.
  bool from_scratch = false;
  // From this checkpoint directory, absolute.
  std::string from;
};

// Which jobs to list.
struct ListOptions {
  // Those in one of these states; empty: all.
  std::vector<v1::Job::State> states;
  // At most this many; absent: all.
  std::optional<int> limit;
  // The next_page_token of another list: continue after it.
  std::string page_token;
};

// True for the terminal states SUCCEEDED, FAILED and CANCELLED.
bool HasEnded(v1::Job::State state);

// Thread-safe. Calls block.
class MusterClient {
 public:
  // `address` is host:port. Connects with the first call.
  // INVALID_ARGUMENT: it is not of the form host:port.
  static absl::StatusOr<std::unique_ptr<MusterClient>> Connect(const std::string& address);

  virtual ~MusterClient() = default;

  virtual const std::string& address() const = 0;

  // `job_id` may be empty. A new request id is made for each call that changes something.
  virtual absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& job_id,
                                         const RetryOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::ValidateJobResponse> Validate(const v1::JobSpec& spec) = 0;
  virtual absl::StatusOr<v1::Job> Get(const std::string& job_id) = 0;
  // Newest first; requested in pages. The result's next_page_token is set if there are more than
  // `limit`.
  virtual absl::StatusOr<v1::ListJobsResponse> List(const ListOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::Job> Stop(const std::string& job_id,
                                       const SteerOptions& options = {}) = 0;
  // The next attempt of a job that FAILED or was CANCELLED. at_step is not used.
  virtual absl::StatusOr<v1::Job> Retry(const std::string& job_id,
                                        const SteerOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::DeleteJobResponse> Delete(const std::string& job_id,
                                                       const RetryOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::ListNodesResponse> Nodes() = 0;
  // Tells the coordinator that the processes on a node that is not attached have ended.
  virtual absl::Status ForgetNode(const std::string& node, const SteerOptions& options = {}) = 0;
  // These calls answer once the change is durable, with the state of the node. at_step is not used.
  // `deadline`: how long the jobs there may take; absent: the deadline given before, else the
  // setting of the node's agent.
  virtual absl::StatusOr<v1::Node> DrainNode(
      const std::string& node, const SteerOptions& options = {},
      std::optional<absl::Duration> deadline = std::nullopt) = 0;
  virtual absl::StatusOr<v1::Node> CordonNode(const std::string& node,
                                              const SteerOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::Node> UncordonNode(const std::string& node,
                                                const SteerOptions& options = {}) = 0;
  // A copy of the coordinator's store, piece by piece in order; an error of `take` ends it.
  virtual absl::Status Backup(
      const std::function<absl::Status(const std::string& piece)>& take) = 0;

  // Changes of a running job. These calls answer once the command is durable, with its operation.
  virtual absl::StatusOr<v1::Operation> Pause(const std::string& job_id,
                                              const SteerOptions& options = {}) = 0;
  // at_step is not used. `start` is for a job without processes.
  virtual absl::StatusOr<v1::Operation> Resume(const std::string& job_id,
                                               const SteerOptions& options = {},
                                               const StartOptions& start = {}) = 0;
  // The rules are added after the existing ones. `dry_run`: only reports what would change.
  virtual absl::StatusOr<v1::Operation> SetTrainability(const std::string& job_id,
                                                        const std::vector<v1::TrainableRule>& rules,
                                                        bool dry_run,
                                                        const SteerOptions& options = {}) = 0;
  // at_step is not used.
  virtual absl::StatusOr<v1::Operation> Refresh(const std::string& job_id,
                                                const SteerOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::GetTrainabilityResponse> GetTrainability(
      const std::string& job_id) = 0;
  virtual absl::StatusOr<v1::Operation> SaveCheckpoint(const std::string& job_id,
                                                       const SteerOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::Operation> SetLearningRate(const std::string& job_id, double rate,
                                                        const SteerOptions& options = {}) = 0;

  // `name` is "JOB/NUMBER".
  virtual absl::StatusOr<v1::Operation> GetOperation(const std::string& name) = 0;
  // Oldest first, asked for in pages.
  virtual absl::StatusOr<std::vector<v1::Operation>> Operations(const std::string& job_id) = 0;
  // Waits until it is done, even if the connection breaks. DEADLINE_EXCEEDED: it is not done in
  // time.
  virtual absl::StatusOr<v1::Operation> WaitOperation(const std::string& name,
                                                      const StreamOptions& options) = 0;
  virtual absl::StatusOr<v1::Operation> CancelOperation(const std::string& name,
                                                        const SteerOptions& options = {}) = 0;

  // Calls `changed` with the job as it is, and again after each change, until the job has ended or
  // `changed` returns false. Continues after a broken connection: no state is given twice, and the
  // last one is never lost.
  virtual absl::Status Watch(const std::string& job_id, const StreamOptions& options,
                             const std::function<bool(const v1::Job&)>& changed) = 0;
  // Watches until the job has ended, and gives its last state. DEADLINE_EXCEEDED: it has not ended
  // in time.
  virtual absl::StatusOr<v1::Job> Wait(const std::string& job_id, const StreamOptions& options) = 0;

  // The job's stored log lines; with `follow` also later ones, until the job ends. Continues after
  // a broken connection.
  virtual absl::Status Logs(const std::string& job_id, std::optional<uint32_t> rank, bool follow,
                            const StreamOptions& options,
                            const std::function<void(const v1::LogLine&)>& line) = 0;
  // The stored measurements of the job's steps and validation passes; with `follow` also later
  // ones, until the job ends. Continues after a broken connection: every entry is given exactly
  // once.
  virtual absl::Status Metrics(const std::string& job_id, bool follow, const StreamOptions& options,
                               const std::function<void(const v1::StepMetrics&)>& entry) = 0;
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_CLIENT_H_
