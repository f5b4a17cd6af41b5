// The stream's state. Its functions are in two files:
// - control_stream.cc: construction, destruction, the owner's calls, and sent messages;
// - control_stream_reader.cc: connections and received messages.
#ifndef MUSTER_WORKER_CONTROL_CONTROL_STREAM_IMPL_H_
#define MUSTER_WORKER_CONTROL_CONTROL_STREAM_IMPL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/connection_probe.h"
#include "common/steady/condition.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"
#include "worker/control/control_stream.h"
#include "worker/control/lease_keeper.h"
#include "worker/control/received.h"
#include "worker/control/report_spool.h"

namespace muster::control {

// A stream with four threads, since gRPC allows one reader and one writer at a time:
// - The reader reads, and opens a new stream when the stream breaks.
// - The writer writes, and sends the heartbeats.
// - The lease keeper watches the lease.
// - The prober asks, while the stream is broken, whether a process listens at the coordinator's
//   address.
// Nothing that may block is done under mutex_, because the lease keeper locks it. Even logging may
// block: if the agent is stopped, the log is a full pipe.
class ControlStreamImpl : public ControlStream {
 public:
  explicit ControlStreamImpl(ControlStreamOptions options);
  ~ControlStreamImpl() override;

  absl::Status Start();

  // The first welcome is set before Start returns and never changes.
  const v1::WorkerWelcome& welcome() const override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *received_.first_welcome;
  }

  absl::Status StillMine() const override;
  bool Away() const override;
  void Report(v1::WorkerReport report) override;
  bool AwaitAcknowledged(absl::Duration timeout) override;
  absl::Status Flush(absl::Duration timeout) override;
  void SetProgress(v1::WorkerHeartbeat progress) override;
  absl::StatusOr<v1::Rendezvous> WaitForRendezvous(absl::Duration timeout) override;
  bool WaitForExportGranted(const std::string& path, absl::Duration timeout) override;
  bool Preempted() const override;
  uint64_t NewestCommand() const override;
  v1::Command GetCommand(uint64_t number) const override;

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::WorkerDirective>;

  // The connection as the reader's thread sees it.
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    // The time at which the newest stream was opened.
    absl::Time opened;
    // The lease of the newest welcome.
    absl::Duration lease;
  };
  // The stream as all threads see it.
  struct CallState {
    // The call that is under way; null: there is no call.
    grpc::ClientContext* context = nullptr;
    // The welcomed stream; null: there is none. The reader ends it only when not `writing`.
    Stream* stream = nullptr;
    bool writing = false;
    // The stream was welcomed, and no break is known.
    bool attached = false;
    // The next stream uses a new connection.
    bool new_channel = false;
    // The time of the newest refused connection.
    absl::Time refused = absl::InfinitePast();
    // True when this object ends: no further stream is opened.
    bool closing = false;
  };

  // The number of times within a lease that the probe asks whether a process listens at the
  // coordinator's address, while the stream is broken.
  static constexpr int kProbesPerLease = 10;

  void Wake();

  // The reader thread's loop.
  void ReadLoop();
  // Opens a stream and reads to its end; returns the reason of the end.
  absl::Status ReadOneConnection();
  v1::WorkerMessage Hello() const;
  void Handle(const v1::WorkerDirective& directive, Stream* stream);

  // Called by the probe: a connection was refused.
  void Refused(absl::Time begun);
  // Called if the stream is open but no message arrives: cancels the stream. The next stream uses a
  // new connection.
  void Reconnect();

  // The writer thread's loop.
  void WriteLoop();
  // Does the work that is due with the reports on the agent's disk. Returns the time of the next
  // call.
  absl::Time Spool(absl::Duration timeout);
  // Waits until a report was queued or a message was received, at most `timeout`.
  void AwaitWork(absl::Duration timeout);

  const ControlStreamOptions options_;
  Connection connection_;

  mutable absl::Mutex mutex_;
  // Signalled after each change for which a thread may wait.
  SteadyCondition changed_;
  // The writer has something to do.
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  // The end of Start: OK, or the refusal that Start returns. Absent: Start has not ended. After OK
  // a refusal goes to on_fatal.
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mutex_);
  CallState call_ ABSL_GUARDED_BY(mutex_);
  Received received_ ABSL_GUARDED_BY(mutex_);
  SpooledOutbox outbox_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerHeartbeat progress_ ABSL_GUARDED_BY(mutex_);

  // Changed by the writer's thread only.
  ReportSpool spool_;
  LeaseKeeper keeper_;
  ConnectionProbe probe_;
  std::thread reader_;
  std::thread writer_;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_CONTROL_STREAM_IMPL_H_
