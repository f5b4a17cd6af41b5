#include "worker/comm/gloo/operations.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::comm {
namespace {

constexpr int kNobody = -1;

absl::Status LeftEarly(int peer, int64_t operations) {
  return absl::UnavailableError(absl::StrCat(
      "rank ", peer, " is gone: it destroyed its communicator after ", operations, " operations"));
}

}  // namespace

absl::Status Operations::Begin(Operation& operation) {
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  operation.number = begun_++;
  in_flight_.insert(operation.number);
  return absl::OkStatus();
}

absl::Status Operations::CheckPeers(int64_t number) {
  absl::MutexLock lock(&mutex_);
  absl::Status status;
  for (const auto& [peer, operations] : left_after_) {
    if (number >= operations) status = LeftEarly(peer, operations);
  }
  return status;
}

void Operations::End(std::shared_ptr<Operation> operation) {
  absl::MutexLock lock(&mutex_);
  in_flight_.erase(operation->number);
  operation->done = true;
  finished_.Changed();
  if (!operation->broken) return;
  operation->result = WithOperation(operation->spec, failure_);
  broken_.push_back(std::move(operation));
}

std::optional<absl::Status> Operations::Await(const Operation& operation, absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  if (!finished_.Await(mutex_, limit, [&] { return operation.done; })) return std::nullopt;
  return operation.result;
}

bool Operations::Fail(const absl::Status& cause) {
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok() || closed_) return false;
  failure_ = cause;
  return true;
}

absl::Status Operations::PeerLeft(int peer, int64_t operations) {
  absl::MutexLock lock(&mutex_);
  left_after_[peer] = operations;
  if (in_flight_.empty() || *in_flight_.rbegin() < operations) return absl::OkStatus();
  return LeftEarly(peer, operations);
}

std::optional<int64_t> Operations::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = failure_.ok() && in_flight_.empty();
  if (!closed_) return std::nullopt;
  return begun_;
}

OperationThread::OperationThread(std::function<void(std::shared_ptr<Operation>)> part)
    : part_(std::move(part)), waits_for_(kNobody), thread_([this] { Run(); }) {}

OperationThread::~OperationThread() { Stop(); }

void OperationThread::Push(std::shared_ptr<Operation> operation) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(operation));
}

void OperationThread::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Operation> OperationThread::Next() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !queue_.empty() || stopping_;
  };
  absl::MutexLock lock(&mutex_, absl::Condition(&ready));
  if (queue_.empty()) return nullptr;
  auto operation = std::move(queue_.front());
  queue_.pop_front();
  return operation;
}

void OperationThread::Run() {
  while (auto operation = Next()) part_(std::move(operation));
}

absl::Status OperationThread::WaitFor(const std::vector<std::unique_ptr<Transfer>>& transfers) {
  for (const auto& transfer : transfers) {
    waits_for_ = transfer->peer();
    absl::Status status = transfer->Wait();
    waits_for_ = kNobody;
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::optional<int> OperationThread::waits_for() const {
  const int peer = waits_for_;
  if (peer == kNobody) return std::nullopt;
  return peer;
}

}  // namespace muster::comm
