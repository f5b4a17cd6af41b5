#include "worker/comm/gloo/operation_thread.h"

#include <utility>

namespace muster::comm {
namespace {

constexpr int kNobody = -1;

}  // namespace

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
