// The worker's stream to the coordinator: reports and heartbeats out, commands and acknowledgements
// in; reconnects by itself. docs/protocol-coordinator.md describes the protocol.
//
// Life cycle: Connect blocks until the coordinator has welcomed this process, and until all
// commands that the job's log had at that time have been received. The destructor closes the
// stream. A worker that is refused as stale, or whose lease is over (common/lease/lease.h), must
// end: `on_fatal` or `on_lease_over` is called, once, from a thread of this object. Threading:
// thread-safe. No callback runs under a lock.
#ifndef MUSTER_WORKER_CONTROL_CONTROL_STREAM_H_
#define MUSTER_WORKER_CONTROL_CONTROL_STREAM_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/knock.h"
#include "common/steady/condition.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"
#include "worker/control/lease_keeper.h"
#include "worker/control/outbox.h"
#include "worker/control/report_spool.h"

namespace muster::control {

struct ControlStreamOptions {
  std::string coordinator;  // host:port
  v1::WorkerIdentity worker;
  int64_t pid = 0;
  // Where reports are kept while the coordinator is away.
  ReportSpoolOptions spool;
  // How long Connect waits for a welcome, counted from the last refused connection: while
  // connections are refused the coordinator is down, and Connect waits for it, but no longer than
  // down_timeout. Before that the agent ends this process when its own lease is over.
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration down_timeout = absl::Hours(24 * 365);
  // When the lease of the agent that started this process is over, as far as is known at the time
  // of the call: Connect waits no longer than that. Empty: there is no such lease.
  std::function<absl::Time()> agents_lease_end;
  // Adds measurements to a heartbeat when it is sent; may be empty. Called from a thread of this
  // object.
  std::function<void(v1::WorkerHeartbeat*)> measure;
  // Called with names of checkpoints in the job's own folder that no longer count and must be
  // removed.
  std::function<void(const std::vector<std::string>& names)> on_remove;
  // FAILED_PRECONDITION or NOT_FOUND: the process was refused as stale; INVALID_ARGUMENT: one of
  // its messages was refused.
  std::function<void(const absl::Status&)> on_fatal;
  // UNAVAILABLE. Called on a thread that does nothing else; see LeaseKeeper.
  std::function<void(const absl::Status&)> on_lease_over;
};

// Its functions lie in files by what they do: control_stream.cc (its life, and what its owner asks
// and says), control_stream_reader.cc (connections, and what comes), control_stream_writer.cc (what
// goes out).
//
// Four threads: one reads, and opens the stream anew when it breaks; one writes, and keeps the
// heartbeat (gRPC allows one reader and one writer at a time on a stream); the lease's; and one
// that asks whether anybody listens while the stream is broken. Nothing that may block is done
// under mutex_, also no logging (of a stopped agent the log is a full pipe): the lease's thread
// takes it.
class ControlStream {
 public:
  // UNAVAILABLE: not welcomed in time. ABORTED: the agent's lease was over before that.
  // FAILED_PRECONDITION, NOT_FOUND, INVALID_ARGUMENT: refused (see on_fatal, which is not called
  // then).
  static absl::StatusOr<std::unique_ptr<ControlStream>> Connect(ControlStreamOptions options);
  ~ControlStream();

  // The first welcome: what to run. It is set before Connect returns and never changes.
  const v1::WorkerWelcome& welcome() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *first_welcome_;
  }

  // UNAVAILABLE: the lease is over. Cheap.
  absl::Status StillMine() const;
  // The stream is broken: the coordinator is down, or cut off.
  bool Away() const;

  // Queues a report; it is numbered here and delivered exactly once, in order.
  void Report(v1::WorkerReport report);
  // Waits until the coordinator has acknowledged every report so far or, if it does not answer,
  // until the reports are written to the agent's spool (not until they are synced); the agent sends
  // them if this process ends. False after `timeout`, or earlier if the spool cannot be written or
  // there is none.
  bool Settle(absl::Duration timeout);
  // Waits until every report is durable: acknowledged by the coordinator or, while the coordinator
  // is away, synced to the agent's disk. No report may follow. DEADLINE_EXCEEDED after `timeout`.
  absl::Status Flush(absl::Duration timeout);

  // The contents of the next heartbeats.
  void SetProgress(v1::WorkerHeartbeat progress);

  // Where rank 0's store listens. DEADLINE_EXCEEDED after `timeout`.
  absl::StatusOr<v1::Rendezvous> WaitForRendezvous(absl::Duration timeout);

  // Waits until the coordinator has granted the export to `path`. False after `timeout`.
  bool WaitForExportGranted(const std::string& path, absl::Duration timeout);
  // True if the coordinator has said that the job should save a checkpoint and continue on other
  // nodes.
  bool Preempted() const;

  // The received part of the command log: numbers 1 to NewestCommand().
  uint64_t NewestCommand() const;
  v1::Command GetCommand(uint64_t number) const;

 private:
  explicit ControlStream(ControlStreamOptions options);

  absl::Status Start();

  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::WorkerDirective>;

  // While the stream is broken: so often within a lease the coordinator's host is asked whether
  // anybody listens.
  static constexpr int kKnocksPerLease = 10;

  void Wake();

  // The reader's thread.
  void ReadLoop();
  // From opening a stream to its end; says why it ended.
  absl::Status ReadOneConnection();
  v1::WorkerMessage Hello() const;
  void Handle(const v1::WorkerDirective& directive, Stream* stream);
  void Take(const v1::WorkerDirective& directive, Stream* stream);
  absl::Status Refusal() const;

  // Of the knocker.
  void Refused(absl::Time begun);
  // The stream stands, and nothing comes: it is given up, and the next one gets a connection of its
  // own.
  void Reconnect();

  // The writer's thread.
  void WriteLoop();
  // Puts what is not there yet on the agent's disk, where the coordinator has been away for so
  // long, or this process is about to end; takes it away again once it is told. When to look again.
  absl::Time Spool(absl::Duration patience);
  // Until something was queued or has come, at most `timeout`.
  void AwaitWork(absl::Duration timeout);
  v1::WorkerMessage Heartbeat() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::WorkerMessage NextReport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ControlStreamOptions options_;
  // Of the reader's thread.
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  absl::Time opened_;
  absl::Duration lease_;
  int welcomes_ = 0;

  mutable absl::Mutex mutex_;
  // Anything that somebody waits for.
  SteadyCondition changed_;
  // There is something for the writer.
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  // Empty: none yet.
  std::string granted_export_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool preempted_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // The welcomed stream; null while there is none. The reader ends it only when not writing_.
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // Welcomed, and not known to be broken.
  bool attached_ ABSL_GUARDED_BY(mutex_) = false;
  bool new_channel_ ABSL_GUARDED_BY(mutex_) = false;
  // The newest connection that was refused.
  absl::Time refused_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time away_since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // This process is about to end; all reports up to flushed_ are on the agent's disk for good.
  bool flushing_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t flushed_ ABSL_GUARDED_BY(mutex_) = 0;
  // Somebody waits until all up to settle_ are spooled; all up to spooled_ are.
  uint64_t settle_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t spooled_ ABSL_GUARDED_BY(mutex_) = 0;
  // When it was tried last, those up to this one could not be spooled.
  uint64_t unspooled_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> refusal_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::WorkerWelcome> first_welcome_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Rendezvous> rendezvous_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Command> commands_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerHeartbeat progress_ ABSL_GUARDED_BY(mutex_);
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);

  // Of the writer's thread.
  ReportSpool spool_;
  absl::Time spooled_at_ = absl::InfinitePast();
  // The disk said no: it is not asked before this.
  absl::Time spool_retry_at_ = absl::InfinitePast();
  bool spool_failed_ = false;

  LeaseKeeper keeper_;
  Knocker knocker_;
  std::thread reader_;
  std::thread writer_;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_CONTROL_STREAM_H_
