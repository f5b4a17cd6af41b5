// A coordinator as a C++ object: JobService and ClusterService (proto/muster/v1/job_service.proto,
// cluster_service.proto) without gRPC's types. Prints nothing. Errors are those of the service, with their reasons
// (common/rpc/error.h), and these of every call:
// UNAVAILABLE: the coordinator cannot be reached, or does not answer in time; the message has its address.
// CANCELLED: by the caller's Cancellation.
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
#include "proto/muster/v1/cluster_service.grpc.pb.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster::client {

// How long a call that follows a job goes on. A coordinator that is absent from the start is an error at once.
struct StreamOptions {
  // After a broken connection: how long it is tried again before the call fails with UNAVAILABLE.
  absl::Duration retry_for = absl::Seconds(30);
  // The call ends here with DEADLINE_EXCEEDED.
  absl::Time deadline = absl::InfiniteFuture();
  // May be null. Must outlive the call.
  Cancellation* cancellation = nullptr;
};

// How long a call that changes something goes on where the coordinator breaks off: it is repeated with the same
// request id, so that it acts once whatever had happened before. A coordinator that is absent from the start is an
// error at once.
struct RetryOptions {
  absl::Duration retry_for = absl::Seconds(30);
  // May be null. Must outlive the call.
  Cancellation* cancellation = nullptr;
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

  const std::string& address() const { return address_; }

  // `job_id` may be empty. A new request id is made for each call of Submit, Stop and Delete.
  absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& job_id,
                                 const RetryOptions& options = {});
  absl::StatusOr<v1::ValidateJobResponse> Validate(const v1::JobSpec& spec);
  absl::StatusOr<v1::Job> Get(const std::string& job_id);
  // Newest first, asked for in pages. The result's next_page_token is set where `limit` left some out.
  absl::StatusOr<v1::ListJobsResponse> List(const ListOptions& options = {});
  absl::StatusOr<v1::Job> Stop(const std::string& job_id, const RetryOptions& options = {});
  absl::StatusOr<v1::DeleteJobResponse> Delete(const std::string& job_id,
                                               const RetryOptions& options = {});
  absl::StatusOr<v1::ListNodesResponse> Nodes();

  // Calls `changed` with the job as it is and after each change, until the job has ended or `changed` says
  // false. Resumes after a broken connection: no state is given twice, and the last one never gets lost.
  absl::Status Watch(const std::string& job_id, const StreamOptions& options,
                     const std::function<bool(const v1::Job&)>& changed);
  // Watches until the job has ended, and gives its last state. DEADLINE_EXCEEDED: it has not ended in time.
  absl::StatusOr<v1::Job> Wait(const std::string& job_id, const StreamOptions& options);

  // The job's log lines that are kept; with `follow` also those to come, until the job ends. Resumes.
  absl::Status Logs(const std::string& job_id, std::optional<uint32_t> rank, bool follow,
                    const StreamOptions& options,
                    const std::function<void(const v1::LogLine&)>& line);
  // What is kept of the job's steps and validation passes; with `follow` also those to come, until the job ends.
  // Resumes: no entry comes twice or is missing.
  absl::Status Metrics(const std::string& job_id, bool follow, const StreamOptions& options,
                       const std::function<void(const v1::StepMetrics&)>& entry);

 private:
  explicit MusterClient(const std::string& address);

  // One unary call with its deadline. `cancellation` may be null.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub* stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, Cancellation* cancellation = nullptr);
  // A call that changes something: gives `request` its id, and repeats it while the connection is broken.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Change(grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                               const Request&,
                                                                               Response*),
                                  Request request, const RetryOptions& options);
  // Whether the coordinator could be reached. Waits for the answer to the first attempt to connect.
  bool Reachable();

  // Opens a stream with `open` and hands each message to `take` (false: enough) until it ends; again while the
  // connection breaks, or while it ends in good order but `finished` says that more must come.
  template <typename T>
  absl::Status Follow(
      const StreamOptions& options,
      const std::function<std::unique_ptr<grpc::ClientReader<T>>(grpc::ClientContext*)>& open,
      const std::function<bool(const T&)>& take, const std::function<bool()>& finished);

  // The status of a call as callers see it: with the address where the coordinator was not reached.
  absl::Status CallStatus(const grpc::Status& status) const;

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::JobService::Stub> stub_;
  const std::unique_ptr<v1::ClusterService::Stub> cluster_stub_;
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_CLIENT_H_
