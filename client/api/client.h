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

// How long a call that follows a job goes on. A coordinator that is absent from the start is an
// error at once.
struct StreamOptions {
  // After a broken connection: how long it is tried again before the call fails with UNAVAILABLE.
  absl::Duration retry_for = absl::Seconds(30);
  // From its begin on: then the call ends with DEADLINE_EXCEEDED. Nobody's setting of the date
  // changes that.
  absl::Duration timeout = absl::InfiniteDuration();
  // May be null. Must outlive the call.
  Cancellation* cancellation = nullptr;
};

// How long a call that changes something goes on where the coordinator breaks off: it is repeated
// with the same request id, so that it acts once whatever had happened before. A coordinator that
// is absent from the start is an error at once.
struct RetryOptions {
  absl::Duration retry_for = absl::Seconds(30);
  // May be null. Must outlive the call.
  Cancellation* cancellation = nullptr;
};

// A change of a running job.
struct SteerOptions {
  RetryOptions retry;
  // Once so many optimizer steps are done; absent: at once.
  std::optional<uint64_t> at_step;
  // Who asks, for the job's history.
  std::string requested_by;
};

// Where a job without processes goes on; neither: from its newest checkpoint.
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
  // At most so many; absent: all.
  std::optional<int> limit;
  // Go on after another list, with its next_page_token.
  std::string page_token;
};

// Of a terminal state: SUCCEEDED, FAILED, CANCELLED.
bool HasEnded(v1::Job::State state);

// Thread-safe. Calls block.
class MusterClient {
 public:
  // `address` is host:port. Connects with the first call.
  // INVALID_ARGUMENT: it is no host:port.
  static absl::StatusOr<std::unique_ptr<MusterClient>> Connect(const std::string& address);

  virtual ~MusterClient() = default;

  virtual const std::string& address() const = 0;

  // `job_id` may be empty. A new request id is made for each call that changes something.
  virtual absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& job_id,
                                         const RetryOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::ValidateJobResponse> Validate(const v1::JobSpec& spec) = 0;
  virtual absl::StatusOr<v1::Job> Get(const std::string& job_id) = 0;
  // Newest first, asked for in pages. The result's next_page_token is set where `limit` left some
  // out.
  virtual absl::StatusOr<v1::ListJobsResponse> List(const ListOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::Job> Stop(const std::string& job_id,
                                       const SteerOptions& options = {}) = 0;
  // The next attempt of a job that FAILED or was CANCELLED. at_step is not used.
  virtual absl::StatusOr<v1::Job> Retry(const std::string& job_id,
                                        const SteerOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::DeleteJobResponse> Delete(const std::string& job_id,
                                                       const RetryOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::ListNodesResponse> Nodes() = 0;
  // What ran on a node that is not attached is taken for gone.
  virtual absl::Status ForgetNode(const std::string& node, const SteerOptions& options = {}) = 0;
  // Answered once they are durable, with the node as it stands. at_step is not used. deadline: how
  // long what runs there may take; absent: what was asked before, else as the node's agent has it.
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

  // Changes of a running job: answered once they are durable, with what becomes of them.
  virtual absl::StatusOr<v1::Operation> Pause(const std::string& job_id,
                                              const SteerOptions& options = {}) = 0;
  // at_step is not used. `start` is for a job without processes.
  virtual absl::StatusOr<v1::Operation> Resume(const std::string& job_id,
                                               const SteerOptions& options = {},
                                               const StartOptions& start = {}) = 0;
  // The rules come behind those in force. dry_run: only says what would change.
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
  // Waits until it is done, also over broken connections. DEADLINE_EXCEEDED: it is not in time.
  virtual absl::StatusOr<v1::Operation> WaitOperation(const std::string& name,
                                                      const StreamOptions& options) = 0;
  virtual absl::StatusOr<v1::Operation> CancelOperation(const std::string& name,
                                                        const SteerOptions& options = {}) = 0;

  // Calls `changed` with the job as it is and after each change, until the job has ended or
  // `changed` says false. Resumes after a broken connection: no state is given twice, and the last
  // one never gets lost.
  virtual absl::Status Watch(const std::string& job_id, const StreamOptions& options,
                             const std::function<bool(const v1::Job&)>& changed) = 0;
  // Watches until the job has ended, and gives its last state. DEADLINE_EXCEEDED: it has not ended
  // in time.
  virtual absl::StatusOr<v1::Job> Wait(const std::string& job_id, const StreamOptions& options) = 0;

  // The job's log lines that are kept; with `follow` also those to come, until the job ends.
  // Resumes.
  virtual absl::Status Logs(const std::string& job_id, std::optional<uint32_t> rank, bool follow,
                            const StreamOptions& options,
                            const std::function<void(const v1::LogLine&)>& line) = 0;
  // What is kept of the job's steps and validation passes; with `follow` also those to come, until
  // the job ends. Resumes: no entry comes twice or is missing.
  virtual absl::Status Metrics(const std::string& job_id, bool follow, const StreamOptions& options,
                               const std::function<void(const v1::StepMetrics&)>& entry) = 0;
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_CLIENT_H_
