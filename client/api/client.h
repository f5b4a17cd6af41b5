// A coordinator as a C++ object: JobService, ControlService, OperationService and ClusterService
// (proto/muster/v1/*_service.proto) over gRPC. It prints nothing. Errors are those of the
// service, with their reasons (common/rpc/error.h). In addition every call may return:
// - UNAVAILABLE: the coordinator cannot be reached, or does not answer in time; the message has its
//   address.
// - CANCELLED: the caller's Cancellation ended the call.
#ifndef MUSTER_CLIENT_API_CLIENT_H_
#define MUSTER_CLIENT_API_CLIENT_H_

#include <google/protobuf/message.h>

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
#include "common/certs/tls_files.h"
#include "common/ids/ids.h"
#include "proto/muster/v1/cluster_service.grpc.pb.h"
#include "proto/muster/v1/control_service.grpc.pb.h"
#include "proto/muster/v1/job_service.grpc.pb.h"
#include "proto/muster/v1/operation.pb.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"

namespace muster::client {

// How long a call that follows a job tries to continue. If the coordinator cannot be reached at the
// start, the call fails at once.
struct StreamOptions {
  // After a broken connection: how long to try again before the call fails with UNAVAILABLE.
  absl::Duration retry_for = absl::Seconds(30);
  // Counted from the start of the call; after this time the call ends with DEADLINE_EXCEEDED.
  // Changes of the system's date have no effect on it.
  absl::Duration timeout = absl::InfiniteDuration();
  // May be null. Must outlive the call.
  Cancellation* cancellation = nullptr;
};

// How long a call that changes something is repeated if the connection breaks. It is repeated with
// the same request id, so that it acts exactly once in all cases. If the coordinator cannot be
// reached at the start, the call fails at once. A call that only reads is repeated in the same way;
// it takes 30 s at most, whether the connection breaks or the coordinator hangs.
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

// What the next attempt of a job has in place of what it had.
struct RetrySettings {
  // "optimizer.adamw.lr=1e-4", in this order.
  std::vector<std::string> settings;
  // Relative paths in them are relative to it; absolute.
  std::string settings_folder;
  // The step of the checkpoint with which the attempt begins. Absent: the newest checkpoint that
  // counts.
  std::optional<uint64_t> from_step;
};

// From where a job without processes continues; if neither is set, from its newest checkpoint.
struct StartOptions {
  // From step 0, even if there are checkpoints.
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
  // `address` is "HOST:PORT" or "unix:/PATH". Connects with the first call. `tls`: what this
  // program has for connections over TCP.
  // INVALID_ARGUMENT: it is of neither form. Others: those of ClientTls.
  static absl::StatusOr<std::unique_ptr<MusterClient>> Connect(const std::string& address,
                                                               const certs::TlsFiles& tls = {});

  const std::string& address() const { return address_; }

  // `job_id` may be empty. `job_file`: its absolute path; empty: there is none. A new request id is
  // made for each call that changes something.
  absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& job_id,
                                 const RetryOptions& options = {},
                                 const std::string& job_file = "");
  absl::StatusOr<v1::ValidateJobResponse> Validate(const v1::JobSpec& spec);
  absl::StatusOr<v1::Job> Get(const std::string& job_id);
  // Newest first; requested in pages. The result's next_page_token is set if there are more than
  // `limit`.
  absl::StatusOr<v1::ListJobsResponse> List(const ListOptions& options = {});
  absl::StatusOr<v1::Job> Stop(const std::string& job_id, const SteerOptions& options = {});
  // The next attempt of a job that FAILED or was CANCELLED. at_step is not used.
  absl::StatusOr<v1::Job> Retry(const std::string& job_id, const SteerOptions& options = {},
                                const RetrySettings& settings = {});
  absl::StatusOr<v1::DeleteJobResponse> Delete(const std::string& job_id,
                                               const RetryOptions& options = {});
  absl::StatusOr<v1::ListNodesResponse> Nodes();
  // Tells the coordinator that the processes on a node that is not attached have ended.
  absl::Status ForgetNode(const std::string& node, const SteerOptions& options = {});
  // These calls answer once the change is durable, with the state of the node. at_step is not used.
  // `deadline`: how long the jobs there may take; absent: the deadline given before, else the
  // setting of the node's agent.
  absl::StatusOr<v1::Node> DrainNode(const std::string& node, const SteerOptions& options = {},
                                     std::optional<absl::Duration> deadline = std::nullopt);
  absl::StatusOr<v1::Node> CordonNode(const std::string& node, const SteerOptions& options = {});
  absl::StatusOr<v1::Node> UncordonNode(const std::string& node, const SteerOptions& options = {});
  // A copy of the coordinator's store, piece by piece in order; an error of `take` ends it.
  absl::Status Backup(const std::function<absl::Status(const std::string& piece)>& take);

  // Changes of a running job. These calls answer once the command is durable, with its operation.
  absl::StatusOr<v1::Operation> Pause(const std::string& job_id, const SteerOptions& options = {});
  // at_step is not used. `start` is for a job without processes.
  absl::StatusOr<v1::Operation> Resume(const std::string& job_id, const SteerOptions& options = {},
                                       const StartOptions& start = {});
  // A command of ControlService: `request` has what it is about, the other fields are filled in.
  // at_step is used where the request has one.
  template <typename Request>
  absl::StatusOr<v1::Operation> Steer(grpc::Status (v1::ControlService::Stub::*method)(
                                          grpc::ClientContext*, const Request&, v1::Operation*),
                                      const std::string& job_id, Request request,
                                      const SteerOptions& options = {}) {
    Fill(job_id, options, &request);
    return Send(
        request,
        [&](grpc::ClientContext* context, v1::Operation* operation) {
          return (control_stub_.get()->*method)(context, request, operation);
        },
        options.retry);
  }
  absl::StatusOr<v1::GetTrainabilityResponse> GetTrainability(const std::string& job_id);

  // `name` is "JOB/NUMBER".
  absl::StatusOr<v1::Operation> GetOperation(const std::string& name);
  // Oldest first, asked for in pages.
  absl::StatusOr<std::vector<v1::Operation>> Operations(const std::string& job_id);
  // Waits until it is done, even if the connection breaks. DEADLINE_EXCEEDED: it is not done in
  // time.
  absl::StatusOr<v1::Operation> WaitOperation(const std::string& name,
                                              const StreamOptions& options);
  absl::StatusOr<v1::Operation> CancelOperation(const std::string& name,
                                                const SteerOptions& options = {});

  // The file that an operation wrote for this client, from `offset` on: `take` gets the pieces in
  // order and without gaps; an error of it ends the call. Continues after a broken connection.
  // Returns the hash of the whole file (common/files/hash.h). Errors: those of
  // OperationService.Download; DATA_LOSS: the pieces do not follow one another.
  absl::StatusOr<std::string> Download(const std::string& name, uint64_t offset,
                                       const StreamOptions& options,
                                       const std::function<absl::Status(const std::string&)>& take);
  // The client has this file: it may be removed on the cluster.
  absl::Status FinishDownload(const std::string& name);

  // Calls `changed` with the job as it is, and again after each change, until the job has ended or
  // `changed` returns false. Continues after a broken connection: no state is given twice, and the
  // last one is never lost.
  absl::Status Watch(const std::string& job_id, const StreamOptions& options,
                     const std::function<bool(const v1::Job&)>& changed);
  // Watches until the job has ended, and gives its last state. DEADLINE_EXCEEDED: it has not ended
  // in time.
  absl::StatusOr<v1::Job> Wait(const std::string& job_id, const StreamOptions& options);

  // The job's stored log lines; with `follow` also later ones, until the job ends. Continues after
  // a broken connection.
  absl::Status Logs(const std::string& job_id, std::optional<uint32_t> rank, bool follow,
                    const StreamOptions& options,
                    const std::function<void(const v1::LogLine&)>& line);
  // The stored measurements of the job's steps and validation passes; with `follow` also later
  // ones, until the job ends. Continues after a broken connection: every entry is given exactly
  // once.
  absl::Status Metrics(const std::string& job_id, bool follow, const StreamOptions& options,
                       const std::function<void(const v1::StepMetrics&)>& entry);

 private:
  MusterClient(const std::string& address, std::shared_ptr<grpc::Channel> channel);

  // One unary call with its deadline. `cancellation` may be null.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> CallOnce(
      Stub* stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
      const Request& request, Cancellation* cancellation, absl::Duration timeout);
  // Repeats a unary call while the connection is broken, if it could be made at the start.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Repeat(Stub* stub,
                                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*),
                                  const Request& request, const RetryOptions& options);
  // A call that changes nothing. It is repeated in the same way, for as long as one call may take.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Read(Stub* stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request);
  // A call that changes something: all its repeats have one new request id.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Change(Stub* stub,
                                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*),
                                  Request request, const RetryOptions& options);
  // Sets what all commands for a job have, with a new request id.
  template <typename Request>
  static void Fill(const std::string& job_id, const SteerOptions& options, Request* request) {
    request->set_job_id(job_id);
    request->set_request_id(NewUuid());
    request->set_requested_by(options.requested_by);
    if constexpr (requires { request->set_at_step(0); }) {
      if (options.at_step.has_value()) request->set_at_step(*options.at_step);
    }
  }
  // Makes the call of a command, with this request, as Change does.
  using CommandCall = std::function<grpc::Status(grpc::ClientContext*, v1::Operation*)>;
  absl::StatusOr<v1::Operation> Send(const google::protobuf::Message& request,
                                     const CommandCall& call, const RetryOptions& options);
  // The same for a change of one node.
  template <typename Request>
  absl::StatusOr<v1::Node> ChangeNode(grpc::Status (v1::ClusterService::Stub::*method)(
                                          grpc::ClientContext*, const Request&, v1::Node*),
                                      const std::string& node, const SteerOptions& options);
  // Returns whether the coordinator can be reached. Waits for the answer to the first attempt to
  // connect.
  bool Reachable();

  // Opens a stream with `open` and passes each message to `take` (which returns false to stop)
  // until it ends. Opens it again if the connection breaks, or if it ends with OK but `finished`
  // says that more messages must come, until `deadline` of SteadyNow().
  template <typename T>
  absl::Status ReadStream(
      const StreamOptions& options, absl::Time deadline,
      const std::function<std::unique_ptr<grpc::ClientReader<T>>(grpc::ClientContext*)>& open,
      const std::function<bool(const T&)>& take, const std::function<bool()>& finished);

  // The status that callers get: with the address if the coordinator was not reached.
  absl::Status CallStatus(const grpc::Status& status) const;

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::JobService::Stub> stub_;
  const std::unique_ptr<v1::ControlService::Stub> control_stub_;
  const std::unique_ptr<v1::OperationService::Stub> operation_stub_;
  const std::unique_ptr<v1::ClusterService::Stub> cluster_stub_;
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_CLIENT_H_
