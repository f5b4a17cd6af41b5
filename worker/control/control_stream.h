// The worker's stream to the coordinator: sends reports and heartbeats, receives commands and
// acknowledgements, and reconnects by itself. docs/internals/protocol-coordinator.md describes the
// protocol.
//
// Life cycle: Connect blocks until the coordinator has welcomed this process, and until all
// commands that the job's log had at that time have been received. The destructor closes the
// stream. A worker must end if it is refused as stale, or if its lease is over
// (common/lease/lease.h). Then a thread of this object calls `on_fatal` or `on_lease_over`, once.
// Threading: thread-safe. No callback runs under a lock.
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
  std::string coordinator;  // the coordinator's address
  // The credentials for the connection; null: in plain text.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  v1::WorkerIdentity worker;
  int64_t pid = 0;
  // The secret by which this process shows that its agent started it; may be empty.
  std::string secret;
  // The place of reports while the coordinator cannot be reached.
  ReportSpoolOptions spool;
  // The time that Connect waits for a welcome, counted from the last refused connection. While
  // connections are refused, the coordinator is down, and Connect waits at most down_timeout. The
  // agent ends this process earlier if the agent's own lease is over.
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration down_timeout = absl::Hours(24 * 365);
  // Returns the end of the lease of the agent that started this process, as known at the time of
  // the call. Connect waits no longer than this time. Empty: there is no such lease.
  std::function<absl::Time()> agents_lease_end;
  // Adds measurements to a heartbeat when it is sent; may be empty. Called from a thread of this
  // object.
  std::function<void(v1::WorkerHeartbeat*)> measure;
  // Called with names of checkpoints in the job's own folder that must be removed, because they no
  // longer count.
  std::function<void(const std::vector<std::string>& names)> on_remove;
  // Called when the coordinator refuses this process. FAILED_PRECONDITION or NOT_FOUND: the process
  // is stale. PERMISSION_DENIED: the process is not known. INVALID_ARGUMENT: a message of the
  // process was refused.
  std::function<void(const absl::Status&)> on_fatal;
  // Called with UNAVAILABLE on a thread that does nothing else; see LeaseKeeper. Empty: on_fatal is
  // called.
  std::function<void(const absl::Status&)> on_lease_over;
};

class ControlStream {
 public:
  // UNAVAILABLE: there was no welcome in time. ABORTED: the agent's lease was over before the
  // welcome came. FAILED_PRECONDITION, NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT: refused (see
  // on_fatal, which is not called then).
  static absl::StatusOr<std::unique_ptr<ControlStream>> Connect(ControlStreamOptions options);
  virtual ~ControlStream() = default;

  // The first welcome, which says what to run.
  virtual const v1::WorkerWelcome& welcome() const = 0;

  // UNAVAILABLE: the lease is over. Cheap.
  virtual absl::Status StillMine() const = 0;
  // True while the stream is broken: the coordinator is down, or the network is cut.
  virtual bool Away() const = 0;

  // Queues a report. The report is numbered here and delivered exactly once, in order.
  virtual void Report(v1::WorkerReport report) = 0;
  // Waits until the coordinator has acknowledged all reports so far. If it does not answer, waits
  // until the reports are written to the agent's spool, but not until they are synced. The agent
  // sends spooled reports if this process ends. False after `timeout`, or earlier if the spool
  // cannot be written or does not exist.
  virtual bool AwaitAcknowledged(absl::Duration timeout) = 0;
  // Waits until all reports are durable: acknowledged by the coordinator or, while the coordinator
  // is away, synced to the agent's disk. DEADLINE_EXCEEDED after `timeout`. Call it only near the
  // end of the process: afterwards, while the coordinator is away, each report is synced at once.
  virtual absl::Status Flush(absl::Duration timeout) = 0;

  // Sets the contents of the next heartbeats.
  virtual void SetProgress(v1::WorkerHeartbeat progress) = 0;

  // Waits for the address at which rank 0's store listens, and returns the address.
  // DEADLINE_EXCEEDED after `timeout`.
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
