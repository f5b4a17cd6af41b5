// The stream's state. Its functions are in two files: control_stream.cc (construction, destruction,
// the calls of its owner, and sent messages), control_stream_reader.cc (connections and received
// messages).
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
#include "common/rpc/knock.h"
#include "common/steady/condition.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"
#include "worker/control/control_stream.h"
#include "worker/control/lease_keeper.h"
#include "worker/control/received.h"
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

  // The first welcome is set before Start returns and never changes.
  const v1::WorkerWelcome& welcome() const override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *received_.first_welcome;
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

  // The connection as the reader's thread sees it.
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    // When the newest stream was opened.
    absl::Time opened;
    // As the newest welcome said.
    absl::Duration lease;
  };
  // The stream as all threads see it.
  struct Line {
    // The call that is under way; null while there is none.
    grpc::ClientContext* context = nullptr;
    // The welcomed stream; null while there is none. The reader ends it only when not `writing`.
    Stream* stream = nullptr;
    bool writing = false;
    // The stream was welcomed, and is not known to be broken.
    bool attached = false;
    // The next stream uses a new connection.
    bool new_channel = false;
    // The time of the newest refused connection.
    absl::Time refused = absl::InfinitePast();
    // This object ends: no other stream is opened.
    bool closing = false;
  };

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

  // Called by the knocker: a connection was refused.
  void Refused(absl::Time begun);
  // Called if the stream is open but no message arrives: cancels it, and the next stream uses a new
  // connection.
  void Reconnect();

  // The writer's thread.
  void WriteLoop();
  // Does what is to be done now with the reports on the agent's disk. Returns when to call it
  // again.
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
  // How Start ended: OK, or the refusal that Start returns. Absent: it has not ended. After OK a
  // refusal goes to on_fatal.
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mutex_);
  Line line_ ABSL_GUARDED_BY(mutex_);
  Received received_ ABSL_GUARDED_BY(mutex_);
  SpooledOutbox outbox_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerHeartbeat progress_ ABSL_GUARDED_BY(mutex_);

  // The writer's thread alone changes it.
  ReportSpool spool_;
  LeaseKeeper keeper_;
  Knocker knocker_;
  std::thread reader_;
  std::thread writer_;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_CONTROL_STREAM_IMPL_H_
