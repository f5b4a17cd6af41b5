// The worker's stream to the coordinator: reports and heartbeats out, commands and acknowledgements
// in; reconnects by itself. docs/internals/protocol-coordinator.md describes the protocol.
//
// Life cycle: Connect blocks until the coordinator has welcomed this process, and until all
// commands that the job's log had at that time have been received. The destructor closes the
// stream. A worker that is refused as stale, or whose lease is over (common/lease/lease.h), must
// end: `on_fatal` or `on_lease_over` is called, once, from a thread of this object. Threading:
// thread-safe. No callback runs under a lock.
#ifndef MUSTER_WORKER_CONTROL_CONTROL_STREAM_H_
#define MUSTER_WORKER_CONTROL_CONTROL_STREAM_H_

#include <grpcpp/security/credentials.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/muster/v1/worker_service.pb.h"
#include "worker/control/report_spool.h"

namespace muster::control {

struct ControlStreamOptions {
  std::string coordinator;  // its address
  // With which to connect to it; null: in plain text.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  v1::WorkerIdentity worker;
  int64_t pid = 0;
  // By which this process shows that its agent started it; may be empty.
  std::string secret;
  // Where reports are kept while the coordinator cannot be reached.
  ReportSpoolOptions spool;
  // How long Connect waits for a welcome, counted from the last refused connection: while
  // connections are refused the coordinator is down, and Connect waits for it, but no longer than
  // down_timeout. Before that the agent ends this process when its own lease is over.
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration down_timeout = absl::Hours(24 * 365);
  // Returns the end of the lease of the agent that started this process, as known at the time of
  // the call: Connect waits no longer than that. Empty: there is no such lease.
  std::function<absl::Time()> agents_lease_end;
  // Adds measurements to a heartbeat when it is sent; may be empty. Called from a thread of this
  // object.
  std::function<void(v1::WorkerHeartbeat*)> measure;
  // Called with names of checkpoints in the job's own folder that no longer count and must be
  // removed.
  std::function<void(const std::vector<std::string>& names)> on_remove;
  // FAILED_PRECONDITION or NOT_FOUND: the process was refused as stale; PERMISSION_DENIED: it is
  // not known; INVALID_ARGUMENT: one of its messages was refused.
  std::function<void(const absl::Status&)> on_fatal;
  // UNAVAILABLE. Called on a thread that does nothing else; see LeaseKeeper.
  std::function<void(const absl::Status&)> on_lease_over;
};

class ControlStream {
 public:
  // UNAVAILABLE: not welcomed in time. ABORTED: the agent's lease was over before that.
  // FAILED_PRECONDITION, NOT_FOUND, INVALID_ARGUMENT: refused (see on_fatal, which is not called
  // then).
  static absl::StatusOr<std::unique_ptr<ControlStream>> Connect(ControlStreamOptions options);
  virtual ~ControlStream() = default;

  // The first welcome; it says what to run.
  virtual const v1::WorkerWelcome& welcome() const = 0;

  // UNAVAILABLE: the lease is over. Cheap.
  virtual absl::Status StillMine() const = 0;
  // True while the stream is broken: the coordinator is down, or the network is cut.
  virtual bool Away() const = 0;

  // Queues a report; it is numbered here and delivered exactly once, in order.
  virtual void Report(v1::WorkerReport report) = 0;
  // Waits until the coordinator has acknowledged every report so far or, if it does not answer,
  // until the reports are written to the agent's spool (not until they are synced); the agent sends
  // them if this process ends. False after `timeout`, or earlier if the spool cannot be written or
  // there is none.
  virtual bool Settle(absl::Duration timeout) = 0;
  // Waits until every report is durable: acknowledged by the coordinator or, while the coordinator
  // is away, synced to the agent's disk. DEADLINE_EXCEEDED after `timeout`. Call it near the end of
  // the process only: while the coordinator is away, every later report is synced at once.
  virtual absl::Status Flush(absl::Duration timeout) = 0;

  // Sets the contents of the next heartbeats.
  virtual void SetProgress(v1::WorkerHeartbeat progress) = 0;

  // Waits for the address at which rank 0's store listens, and returns it. DEADLINE_EXCEEDED after
  // `timeout`.
  virtual absl::StatusOr<v1::Rendezvous> WaitForRendezvous(absl::Duration timeout) = 0;

  // Waits until the coordinator has granted the export to `path`. False after `timeout`.
  virtual bool WaitForExportGranted(const std::string& path, absl::Duration timeout) = 0;
  // True if the coordinator has said that the job should save a checkpoint and continue on other
  // nodes.
  virtual bool Preempted() const = 0;

  // The received part of the command log: numbers 1 to NewestCommand().
  virtual uint64_t NewestCommand() const = 0;
  virtual v1::Command GetCommand(uint64_t number) const = 0;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_CONTROL_STREAM_H_
