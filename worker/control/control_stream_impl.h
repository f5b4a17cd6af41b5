// The stream's state; its functions lie in files by what they do: control_stream.cc (its life, and
// what its owner asks and says), control_stream_reader.cc (connections, and what comes),
// control_stream_writer.cc (what goes out).
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

// Four threads: one reads, and opens the stream anew when it breaks; one writes, and keeps the
// heartbeat (gRPC allows one reader and one writer at a time on a stream); the lease's; and one
// that asks whether anybody listens while the stream is broken. Nothing that may block is done
// under mutex_, also no logging (of a stopped agent the log is a full pipe): the lease's thread
// takes it.
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

#endif  // MUSTER_WORKER_CONTROL_CONTROL_STREAM_IMPL_H_
