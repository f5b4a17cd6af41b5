// Agents and workers that a test controls, over real streams to a real server. Each wait ends with
// a message, with the end of the stream, or after a timeout that only a broken coordinator reaches.
#ifndef MUSTER_COORDINATOR_SERVICE_FAKE_PEERS_H_
#define MUSTER_COORDINATOR_SERVICE_FAKE_PEERS_H_

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/ids/ids.h"
#include "common/rpc/rpc.h"
#include "common/steady/test_bound.h"
#include "common/version/protocol.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"

namespace muster::service {

// One client stream, and a thread that reads from it.
template <typename Service, typename Out, typename In>
class Peer {
 public:
  explicit Peer(const std::string& address)
      : stub_(Service::NewStub(OpenChannel(address))), stream_(stub_->Attach(&context_)) {
    reader_ = std::thread([this] { Read(); });
  }
  ~Peer() {
    context_.TryCancel();
    reader_.join();
  }

  bool Send(const Out& message) { return stream_->Write(message); }
  // Removes and returns the first message that fits; absent if the stream ends without such a
  // message.
  std::optional<In> Take(const std::function<bool(const In&)>& fits) {
    absl::MutexLock lock(&mutex_);
    const auto find = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::find_if(inbox_.begin(), inbox_.end(), fits);
    };
    const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return find() != inbox_.end() || status_.has_value();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), kTestBound);
    const auto found = find();
    if (found == inbox_.end()) return std::nullopt;
    In taken = std::move(*found);
    inbox_.erase(found);
    return taken;
  }
  // Returns the stream's status at its end; absent if the stream does not end.
  std::optional<grpc::Status> End() {
    absl::MutexLock lock(&mutex_);
    const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return status_.has_value(); };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), kTestBound);
    return status_;
  }

 private:
  void Read() {
    In message;
    while (stream_->Read(&message)) {
      absl::MutexLock lock(&mutex_);
      inbox_.push_back(std::move(message));
    }
    grpc::Status status = stream_->Finish();
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
  }

  grpc::ClientContext context_;
  std::unique_ptr<typename Service::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<Out, In>> stream_;
  std::thread reader_;

  absl::Mutex mutex_;
  std::deque<In> inbox_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mutex_);
};

class FakeAgent : public Peer<v1::AgentService, v1::AgentMessage, v1::AgentDirective> {
 public:
  FakeAgent(const std::string& address, const v1::AgentHello& hello) : Peer(address) {
    v1::AgentMessage message;
    *message.mutable_hello() = hello;
    Send(message);
  }
  static v1::AgentHello Hello(const std::string& node, uint32_t slots) {
    v1::AgentHello hello;
    hello.set_node(node);
    hello.set_incarnation(NewUuid());
    hello.set_slots(slots);
    hello.set_host("127.0.0.1");
    hello.set_protocol(kAgentProtocol);
    return hello;
  }

  bool Welcomed() {
    return Take([](const v1::AgentDirective& d) { return d.has_welcome(); }).has_value();
  }
  // Returns the process that the agent should start as `rank` of `generation`; empty if there is
  // none.
  v1::WorkerIdentity Started(uint64_t generation, uint32_t rank) {
    const auto directive = Take([=](const v1::AgentDirective& d) {
      return d.has_start_worker() && d.start_worker().worker().generation() == generation &&
             d.start_worker().worker().rank() == rank;
    });
    return directive.has_value() ? directive->start_worker().worker() : v1::WorkerIdentity();
  }
  bool ToldToStop(const v1::WorkerIdentity& worker) {
    return Take([&](const v1::AgentDirective& d) {
             return d.has_stop_worker() &&
                    d.stop_worker().worker().incarnation() == worker.incarnation();
           })
        .has_value();
  }
  // Reports the end of a worker's process and waits until the report is durable.
  bool Exit(const v1::WorkerIdentity& worker, int code, int signal = 0) {
    v1::AgentMessage message;
    *message.mutable_worker_exit() = ExitOf(worker, code, signal);
    Send(message);
    return Acked(worker);
  }
  bool Acked(const v1::WorkerIdentity& worker) {
    return Take([&](const v1::AgentDirective& d) {
             return d.has_worker_exit_ack() &&
                    d.worker_exit_ack().worker().incarnation() == worker.incarnation();
           })
        .has_value();
  }
  static v1::WorkerExit ExitOf(const v1::WorkerIdentity& worker, int code, int signal = 0) {
    v1::WorkerExit exit;
    *exit.mutable_worker() = worker;
    exit.set_pid(1000 + worker.rank());
    if (signal != 0) {
      exit.set_signal(signal);
    } else {
      exit.set_exit_code(code);
    }
    exit.set_log_tail("last words");
    return exit;
  }
};

class FakeWorker : public Peer<v1::WorkerService, v1::WorkerMessage, v1::WorkerDirective> {
 public:
  FakeWorker(const std::string& address, const v1::WorkerIdentity& worker,
             uint64_t newest_command = 0, uint32_t protocol = kWorkerProtocol)
      : Peer(address) {
    v1::WorkerMessage message;
    auto* hello = message.mutable_hello();
    *hello->mutable_worker() = worker;
    hello->set_pid(1000 + worker.rank());
    hello->set_newest_command(newest_command);
    hello->set_protocol(protocol);
    Send(message);
  }

  std::optional<v1::WorkerWelcome> Welcome() {
    const auto directive = Take([](const v1::WorkerDirective& d) { return d.has_welcome(); });
    if (!directive.has_value()) return std::nullopt;
    sequence_ = directive->welcome().acked_sequence();
    return directive->welcome();
  }
  // Sends a report and waits until the report is durable.
  bool Report(v1::WorkerReport report) {
    report.set_sequence(++sequence_);
    return SendReport(report);
  }
  bool SendReport(const v1::WorkerReport& report) {
    v1::WorkerMessage message;
    *message.mutable_report() = report;
    Send(message);
    return Take([&](const v1::WorkerDirective& d) {
             return d.has_report_ack() && d.report_ack().sequence() >= report.sequence();
           })
        .has_value();
  }
  void Beat(uint64_t step, const std::string& progress, const v1::RankMemory& memory = {}) {
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_step(step);
    message.mutable_heartbeat()->set_progress(progress);
    *message.mutable_heartbeat()->mutable_memory() = memory;
    Send(message);
  }
  std::optional<v1::Command> Command() {
    const auto directive = Take([](const v1::WorkerDirective& d) { return d.has_command(); });
    return directive.has_value() ? std::optional(directive->command()) : std::nullopt;
  }

  // Returns the reason of the preemption notice; empty if the worker gets none.
  std::string Preempted() {
    const auto directive =
        Take([](const v1::WorkerDirective& d) { return d.has_preemption_notice(); });
    return directive.has_value() ? directive->preemption_notice().reason() : "";
  }

  // ---- Reports.
  static v1::WorkerReport SessionStarted(uint64_t step) {
    v1::WorkerReport report;
    report.mutable_session_started()->set_step(step);
    return report;
  }
  static v1::WorkerReport Step(uint64_t step, double loss) {
    v1::WorkerReport report;
    report.mutable_step()->set_step(step);
    report.mutable_step()->set_loss(loss);
    report.mutable_step()->set_samples(8);
    report.mutable_step()->mutable_duration()->set_nanos(500000000);
    return report;
  }
  static v1::WorkerReport CheckpointWritten(uint64_t step, const std::string& path) {
    v1::WorkerReport report;
    report.mutable_checkpoint_written()->set_step(step);
    report.mutable_checkpoint_written()->set_path(path);
    return report;
  }
  static v1::WorkerReport Finished(uint64_t step) {
    v1::WorkerReport report;
    report.mutable_finished()->set_step(step);
    return report;
  }
  static v1::WorkerReport Failed(const std::string& reason, bool consequence, bool permanent) {
    v1::WorkerReport report;
    report.mutable_failure()->set_reason(reason);
    report.mutable_failure()->set_consequence(consequence);
    report.mutable_failure()->set_permanent(permanent);
    return report;
  }

 private:
  uint64_t sequence_ = 0;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_FAKE_PEERS_H_
