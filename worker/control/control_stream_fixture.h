// A real gRPC server whose handlers are functions of the test, and a stream to it.
#ifndef MUSTER_WORKER_CONTROL_CONTROL_STREAM_FIXTURE_H_
#define MUSTER_WORKER_CONTROL_CONTROL_STREAM_FIXTURE_H_

#include <grpcpp/server_context.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"
#include "worker/control/control_stream.h"

namespace muster::control {

using ServerStream = grpc::ServerReaderWriter<v1::WorkerDirective, v1::WorkerMessage>;

// Passes each connection to the next handler (the last one serves all later connections).
class ScriptedCoordinator : public v1::WorkerService::Service {
 public:
  using Script = std::function<absl::Status(ServerStream*)>;

  explicit ScriptedCoordinator(std::vector<Script> scripts) : scripts_(std::move(scripts)) {
    auto server = Server::Start(ServerOptions::InsecureLoopback(), {this});
    server_ = std::move(server).value();
  }

  grpc::Status Attach(grpc::ServerContext*, ServerStream* stream) override {
    size_t index;
    {
      std::lock_guard lock(mutex_);
      index = std::min(connections_++, scripts_.size() - 1);
    }
    return ToGrpc(scripts_[index](stream));
  }

  std::string address() const { return server_->address(); }

 private:
  const std::vector<Script> scripts_;
  std::mutex mutex_;
  size_t connections_ = 0;
  std::unique_ptr<Server> server_;
};

inline v1::WorkerMessage Read(ServerStream* stream) {
  v1::WorkerMessage message;
  stream->Read(&message);
  return message;
}

inline void Welcome(ServerStream* stream, uint64_t acked = 0, double lease_seconds = 60) {
  v1::WorkerDirective directive;
  auto* welcome = directive.mutable_welcome();
  welcome->mutable_spec()->set_name("job");
  welcome->mutable_heartbeat_interval()->set_nanos(1000000);
  welcome->mutable_lease()->set_nanos(
      static_cast<int32_t>((lease_seconds - int(lease_seconds)) * 1e9));
  welcome->mutable_lease()->set_seconds(static_cast<int64_t>(lease_seconds));
  welcome->set_acked_sequence(acked);
  stream->Write(directive);
}

inline void Ack(ServerStream* stream, uint64_t sequence) {
  v1::WorkerDirective directive;
  directive.mutable_report_ack()->set_sequence(sequence);
  stream->Write(directive);
}

// Reads to the end of the stream, so that the client closes the stream, not the server.
inline absl::Status Drain(ServerStream* stream) {
  v1::WorkerMessage message;
  while (stream->Read(&message)) {
  }
  return absl::OkStatus();
}

inline v1::WorkerMessage NextReport(ServerStream* stream) {
  while (true) {
    v1::WorkerMessage message = Read(stream);
    if (!message.has_heartbeat()) return message;
  }
}

inline v1::WorkerReport Step(uint64_t step) {
  v1::WorkerReport report;
  report.mutable_step()->set_step(step);
  return report;
}

struct Client {
  absl::Notification fatal;
  absl::Status why;
  std::vector<std::string> removed;
  std::atomic<uint64_t> measured = 0;  // the memory in each heartbeat: 1, 2, ...
  absl::StatusOr<std::unique_ptr<ControlStream>> stream = absl::UnknownError("not connected");

  explicit Client(const std::string& address, absl::Duration timeout = absl::Seconds(30),
                  const std::string& spool = "", absl::Duration down_timeout = absl::Hours(1)) {
    ControlStreamOptions options;
    options.down_timeout = down_timeout;
    options.spool.path = spool;
    options.coordinator = address;
    options.worker.set_job_id("job");
    options.pid = 42;
    options.connect_timeout = timeout;
    options.on_remove = [this](const auto& names) {
      removed.insert(removed.end(), names.begin(), names.end());
    };
    options.measure = [this](v1::WorkerHeartbeat* heartbeat) {
      heartbeat->mutable_memory()->set_resident_bytes(++measured);
    };
    options.on_fatal = [this](const absl::Status& status) {
      why = status;
      fatal.Notify();
    };
    stream = ControlStream::Connect(std::move(options));
  }
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_CONTROL_STREAM_FIXTURE_H_
