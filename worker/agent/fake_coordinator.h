// A real AgentService on a real port, for tests. It records the messages of an agent, and sends the
// directives that a test chooses. Workers are small shell scripts: the job's id is the script.
#ifndef MUSTER_WORKER_AGENT_FAKE_COORDINATOR_H_
#define MUSTER_WORKER_AGENT_FAKE_COORDINATOR_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "common/steady/test_bound.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"

namespace muster::agent {

// A "muster-worker" that runs the value of --job as a shell script. Like the true worker, the
// script first unblocks the signals that are blocked at its start. Not every shell does this.
inline std::string ScriptedWorker() {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/scripted-worker";
  std::ofstream(path) << "#!/bin/sh\nexec perl -MPOSIX=:signal_h -e '"
                         "sigprocmask(SIG_SETMASK, POSIX::SigSet->new); "
                         "exec qw(/bin/sh -c), q(eval \"$4\"), \"sh\", @ARGV' -- \"$@\"\n";
  chmod(path.c_str(), 0755);
  return path;
}

inline v1::WorkerIdentity Worker(const std::string& script, uint32_t rank = 0) {
  v1::WorkerIdentity worker;
  worker.set_job_id(script);
  worker.set_generation(1);
  worker.set_rank(rank);
  worker.set_incarnation("incarnation-" + std::to_string(rank));
  return worker;
}

// Waits for the end of a process that is no child of this process.
class Watched {
 public:
  explicit Watched(int64_t pid) : pidfd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
    EXPECT_GE(pidfd_, 0) << "no process " << pid;
  }
  ~Watched() { close(pidfd_); }
  // Waits for the end of the process.
  bool Ends() {
    pollfd poller = {.fd = pidfd_, .events = POLLIN, .revents = 0};
    return poll(&poller, 1, 60'000) == 1;
  }

 private:
  const int pidfd_;
};

class FakeCoordinator : private v1::AgentService::CallbackService {
 public:
  using Message = v1::AgentMessage;

  explicit FakeCoordinator(absl::Duration lease = absl::Seconds(60)) : lease_(lease) {
    Start("127.0.0.1:0");
  }
  ~FakeCoordinator() override { Stop(); }

  const std::string& address() const { return address_; }

  // Ends as if killed: streams break, and the port is closed.
  void Stop() {
    server_.reset();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* streams) { return *streams == 0; }, &streams_));
  }
  // Starts again on the same port, without the messages that were received before.
  void Restart() {
    Clear();
    Start(address_);
  }
  void Clear() {
    absl::MutexLock lock(&mutex_);
    received_.clear();
  }
  // Refuses every later Hello; OK: accepts them again.
  void RefuseWith(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    refusal_ = status;
  }

  void StartWorker(const v1::WorkerIdentity& worker, uint32_t slot = 0, uint32_t threads = 0) {
    v1::AgentDirective directive;
    *directive.mutable_start_worker()->mutable_worker() = worker;
    directive.mutable_start_worker()->set_slot(slot);
    directive.mutable_start_worker()->set_threads(threads);
    Send(directive);
  }
  void StopWorker(const v1::WorkerIdentity& worker, absl::Duration grace) {
    v1::AgentDirective directive;
    *directive.mutable_stop_worker()->mutable_worker() = worker;
    directive.mutable_stop_worker()->mutable_grace()->set_seconds(absl::ToInt64Seconds(grace));
    Send(directive);
  }
  void AckSpool(const v1::WorkerIdentity& worker, uint64_t sequence) {
    v1::AgentDirective directive;
    *directive.mutable_spooled_reports_ack()->mutable_worker() = worker;
    directive.mutable_spooled_reports_ack()->set_sequence(sequence);
    Send(directive);
  }
  void AckExit(const v1::WorkerIdentity& worker) {
    v1::AgentDirective directive;
    *directive.mutable_worker_exit_ack()->mutable_worker() = worker;
    Send(directive);
  }

  // Waits for the first message for which `wanted` returns true, and returns the message.
  Message Await(const std::function<bool(const Message&)>& wanted) {
    absl::MutexLock lock(&mutex_);
    std::optional<Message> found;
    const auto look = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      for (const Message& message : received_) {
        if (wanted(message)) found = message;
        if (found.has_value()) return true;
      }
      return false;
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&look), kTestBound)) {
      ADD_FAILURE() << "the message never came; what came:";
      for (const Message& message : received_) ADD_FAILURE() << message.ShortDebugString();
    }
    return found.value_or(Message());
  }
  v1::AgentHello AwaitHello() {
    return Await([](const Message& m) { return m.has_hello(); }).hello();
  }
  // Waits for a Hello that is refused and for which `wanted` returns true.
  void AwaitRefused(const std::function<bool(const v1::AgentHello&)>& wanted) {
    absl::MutexLock lock(&mutex_);
    const auto look = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return refused_.has_value() && wanted(*refused_);
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&look), kTestBound));
  }
  v1::WorkerStarted AwaitStarted(const v1::WorkerIdentity& worker) {
    return Await([&](const Message& m) {
             return m.has_worker_started() && Same(m.worker_started().worker(), worker);
           })
        .worker_started();
  }
  v1::WorkerExit AwaitExit(const v1::WorkerIdentity& worker) {
    return Await([&](const Message& m) {
             return m.has_worker_exit() && Same(m.worker_exit().worker(), worker);
           })
        .worker_exit();
  }
  // Waits for this line in any worker's log.
  void AwaitLine(const std::string& line) {
    Await([&](const Message& m) {
      for (const std::string& text : m.worker_log().lines()) {
        if (text == line) return true;
      }
      return false;
    });
  }
  std::vector<Message> received() {
    absl::MutexLock lock(&mutex_);
    return received_;
  }

  static bool Same(const v1::WorkerIdentity& a, const v1::WorkerIdentity& b) {
    return a.SerializeAsString() == b.SerializeAsString();
  }

 private:
  class Stream : public grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentDirective> {
   public:
    explicit Stream(FakeCoordinator* owner) : owner_(owner) { StartRead(&incoming_); }

    void Send(const v1::AgentDirective& directive) {
      absl::MutexLock lock(&mutex_);
      outbox_.push_back(directive);
      if (outbox_.size() == 1) StartWrite(&outbox_.front());
    }

   private:
    void OnReadDone(bool ok) override {
      if (!ok) return FinishOnce(absl::OkStatus());
      const absl::Status answer = owner_->Receive(incoming_, this);
      if (!answer.ok()) return FinishOnce(answer);
      StartRead(&incoming_);
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return FinishOnce(absl::OkStatus());
      absl::MutexLock lock(&mutex_);
      outbox_.pop_front();
      if (!outbox_.empty()) StartWrite(&outbox_.front());
    }
    void OnDone() override {
      owner_->Forget(this);
      delete this;
    }
    void FinishOnce(const absl::Status& status) {
      {
        absl::MutexLock lock(&mutex_);
        if (finished_) return;
        finished_ = true;
      }
      Finish(ToGrpc(status));
    }

    FakeCoordinator* const owner_;
    v1::AgentMessage incoming_;
    absl::Mutex mutex_;
    std::deque<v1::AgentDirective> outbox_;
    bool finished_ = false;
  };

  grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentDirective>* Attach(
      grpc::CallbackServerContext*) override {
    absl::MutexLock lock(&mutex_);
    ++streams_;
    return current_ = new Stream(this);
  }

  void Start(const std::string& listen) {
    auto server = Server::Start({.listen = {listen}, .insecure = true}, {this});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = server_->address();
  }

  absl::Status Receive(const v1::AgentMessage& message, Stream* stream) {
    absl::MutexLock lock(&mutex_);
    if (message.has_hello()) {
      if (!refusal_.ok()) {
        refused_ = message.hello();
        return refusal_;
      }
      v1::AgentDirective directive;
      directive.mutable_welcome()->mutable_heartbeat_interval()->set_nanos(10'000'000);
      const int64_t lease = absl::ToInt64Nanoseconds(lease_);
      directive.mutable_welcome()->mutable_lease()->set_seconds(lease / 1'000'000'000);
      directive.mutable_welcome()->mutable_lease()->set_nanos(
          static_cast<int>(lease % 1'000'000'000));
      stream->Send(directive);
    }
    received_.push_back(message);
    return absl::OkStatus();
  }
  void Forget(Stream* stream) {
    absl::MutexLock lock(&mutex_);
    --streams_;
    if (current_ == stream) current_ = nullptr;
  }
  void Send(const v1::AgentDirective& directive) {
    absl::MutexLock lock(&mutex_);
    ASSERT_NE(current_, nullptr) << "no agent is attached";
    current_->Send(directive);
  }

  const absl::Duration lease_;
  std::unique_ptr<Server> server_;
  std::string address_;

  absl::Mutex mutex_;
  std::vector<v1::AgentMessage> received_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  // The newest Hello that was refused.
  std::optional<v1::AgentHello> refused_ ABSL_GUARDED_BY(mutex_);
  Stream* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_FAKE_COORDINATOR_H_
