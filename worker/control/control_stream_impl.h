// The stream's state. Its functions are in three files: control_stream.cc (construction,
// destruction, and the calls of its owner), control_stream_reader.cc (connections and received
// messages), control_stream_writer.cc (sent messages).
#ifndef MUSTER_WORKER_CONTROL_CONTROL_STREAM_IMPL_H_
#define MUSTER_WORKER_CONTROL_CONTROL_STREAM_IMPL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
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
#include "worker/control/control_stream.h"
#include "worker/control/lease_keeper.h"
#include "worker/control/outbox.h"
#include "worker/control/report_spool.h"

namespace muster::control {

// There are four threads. One reads, and opens a new stream when the stream breaks. One writes, and
// sends the heartbeats (gRPC allows one reader and one writer at a time on a stream). One watches
// the lease. One asks, while the stream is broken, whether a process listens at the coordinator's
// address. Nothing that may block is done under mutex_, not even logging (if the agent is stopped,
// the log is a full pipe), because the thread of the lease locks it.
class ControlStreamImpl : public ControlStream {
 public:
  explicit ControlStreamImpl(ControlStreamOptions options);
  ~ControlStreamImpl() override;

  absl::Status Start();

  // first_welcome_ is set before Start returns and never changes.
  const v1::WorkerWelcome& welcome() const override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *first_welcome_;
  }

  absl::Status StillMine() const override;
  bool Away() const override;
  void Report(v1::WorkerReport report) override;
  bool Settle(absl::Duration timeout) override;
  absl::Status Flush(absl::Duration timeout) override;
  void SetProgress(v1::WorkerHeartbeat progress) override;
  absl::StatusOr<v1::Rendezvous> WaitForRendezvous(absl::Duration timeout) override;
  bool WaitForExportGranted(const std::string& path, absl::Duration timeout) override;
  bool Preempted() const override;
  uint64_t NewestCommand() const override;
  v1::Command GetCommand(uint64_t number) const override;

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::WorkerDirective>;

  // How many times within a lease the coordinator's host is asked whether a process listens, while
  // the stream is broken.
  static constexpr int kKnocksPerLease = 10;

  void Wake();

  // The reader's thread.
  void ReadLoop();
  // Opens a stream and reads it to its end; returns why it ended.
  absl::Status ReadOneConnection();
  v1::WorkerMessage Hello() const;
  void Handle(const v1::WorkerDirective& directive, Stream* stream);
  void Take(const v1::WorkerDirective& directive, Stream* stream);
  absl::Status Refusal() const;

  // Called by the knocker: a connection was refused.
  void Refused(absl::Time begun);
  // Called if the stream is open but no message arrives: cancels it, and the next stream uses a new
  // connection.
  void Reconnect();

  // The writer's thread.
  void WriteLoop();
  // Writes reports that are not there yet to the agent's disk if the coordinator has been away for
  // `timeout` or this process is about to end, and removes them from it once they are acknowledged.
  // Returns when to call it again.
  absl::Time Spool(absl::Duration timeout);
  // Waits until a report was queued or a message was received, at most `timeout`.
  void AwaitWork(absl::Duration timeout);
  v1::WorkerMessage Heartbeat() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::WorkerMessage NextReport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ControlStreamOptions options_;
  // The following members belong to the reader's thread.
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  absl::Time opened_;
  absl::Duration lease_;
  int welcomes_ = 0;

  mutable absl::Mutex mutex_;
  // Signalled after each change for which a thread may wait.
  SteadyCondition changed_;
  // The writer has something to do.
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  // The path of the export that was granted; empty: none yet.
  std::string granted_export_ ABSL_GUARDED_BY(mutex_);
  // Start has succeeded: from now on a refusal goes to on_fatal.
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool preempted_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // The welcomed stream; null while there is none. The reader ends it only when not writing_.
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // The stream was welcomed, and is not known to be broken.
  bool attached_ ABSL_GUARDED_BY(mutex_) = false;
  bool new_channel_ ABSL_GUARDED_BY(mutex_) = false;
  // The time of the newest refused connection.
  absl::Time refused_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time away_since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // flushing_: this process is about to end. All reports up to flushed_ are synced to the agent's
  // disk.
  bool flushing_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t flushed_ ABSL_GUARDED_BY(mutex_) = 0;
  // A caller waits until all reports up to settle_ are spooled; all up to spooled_ are spooled.
  uint64_t settle_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t spooled_ ABSL_GUARDED_BY(mutex_) = 0;
  // At the last attempt, the reports up to this one could not be spooled.
  uint64_t unspooled_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> refusal_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::WorkerWelcome> first_welcome_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Rendezvous> rendezvous_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Command> commands_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerHeartbeat progress_ ABSL_GUARDED_BY(mutex_);
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);

  // The following members belong to the writer's thread.
  ReportSpool spool_;
  absl::Time spooled_at_ = absl::InfinitePast();
  // The last write to the disk failed: the next attempt is not before this time.
  absl::Time spool_retry_at_ = absl::InfinitePast();
  bool spool_failed_ = false;

  LeaseKeeper keeper_;
  Knocker knocker_;
  std::thread reader_;
  std::thread writer_;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_CONTROL_STREAM_IMPL_H_
