#include "worker/comm/gloo/gloo_communicator.h"

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/status/status.h"
#include "common/steady/condition.h"
#include "worker/comm/gloo/exchange.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/gloo/peer_watch.h"
#include "worker/comm/gloo/proof.h"
#include "worker/comm/gloo/scratch_pool.h"
#include "worker/comm/operation.h"

namespace muster::comm {
namespace {

constexpr int kNobody = -1;

// One collective in flight. The thread in whose queue it is may use it: first the issuing thread,
// then (for a reduction) the reducing thread, then the finishing thread.
struct Operation {
  OperationSpec spec;
  int64_t number = 0;
  Exchange exchange;
  bool broken = false;  // some transfer failed or was never posted

  // Guarded by the communicator's mutex.
  bool done = false;
  absl::Status result;
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(const GlooOptions& options, std::unique_ptr<Mesh> mesh)
      : options_(options), mesh_(std::move(mesh)) {}

  absl::Status Start() {
    if (options_.world_size == 1) return absl::OkStatus();
    watch_ = std::make_unique<PeerWatch>(
        mesh_.get(), rank(), world_size(),
        PeerWatch::Events{.left = [this](int peer, int64_t n) { PeerLeft(peer, n); },
                          .failed = [this](const absl::Status& why) { Fail(why); }});
    RETURN_IF_ERROR(watch_->Start());
    reducer_ = std::thread([this] { ReduceLoop(); });
    finisher_ = std::thread([this] { FinishLoop(); });
    return absl::OkStatus();
  }

  ~GlooCommunicator() override;

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  c10::Device device() const override { return c10::kCPU; }

  std::unique_ptr<Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                  OpLabel label) override {
    return Issue({OperationKind::kAllGather, label, rank(), out, in});
  }
  std::unique_ptr<Work> AllReduceSum(const at::Tensor& flat, OpLabel label,
                                     double divide_by) override {
    return Issue({OperationKind::kAllReduceSum, label, rank(), flat, {}, 0, divide_by});
  }
  std::unique_ptr<Work> ReduceScatterSum(const at::Tensor& out, const at::Tensor& in, OpLabel label,
                                         double divide_by) override {
    return Issue({OperationKind::kReduceScatterSum, label, rank(), out, in, 0, divide_by});
  }
  std::unique_ptr<Work> AllToAll(const at::Tensor& out, const std::vector<int64_t>& out_sizes,
                                 const at::Tensor& in, const std::vector<int64_t>& in_sizes,
                                 OpLabel label) override {
    return Issue({OperationKind::kAllToAll, label, rank(), out, in, 0, 1.0, out_sizes, in_sizes});
  }
  std::unique_ptr<Work> Broadcast(const at::Tensor& flat, int root, OpLabel label) override {
    return Issue({OperationKind::kBroadcast, label, rank(), flat, {}, root});
  }

  int64_t bytes_sent() const override { return bytes_sent_; }

  void Abort(const absl::Status& why) override {
    Fail(why, absl::UnavailableError(absl::StrCat("rank ", rank(), " aborted: ", Message(why))));
  }

  // Called by Work.
  absl::Status Wait(Operation& operation);

 private:
  std::unique_ptr<Work> Issue(OperationSpec spec);

  // The two threads, and the index of their queues.
  enum Thread { kReducer, kFinisher };

  void ReduceLoop();
  void FinishLoop();
  void Finish(std::shared_ptr<Operation> operation);
  // Waits for an operation; null once the communicator stops and none is left.
  std::shared_ptr<Operation> Next(Thread thread);
  void Queue(Thread thread, std::shared_ptr<Operation> operation);
  // Waits in order. The first failure fails the communicator, and marks the operation broken.
  void WaitFor(Operation& operation, std::vector<std::unique_ptr<Transfer>>& transfers,
               std::atomic<int>& waits_for);

  void Fail(const absl::Status& cause) { Fail(cause, cause); }
  void Fail(const absl::Status& cause, const absl::Status& for_peers);
  void PeerLeft(int peer, int64_t operations);
  static absl::Status LeftEarly(int peer, int64_t operations) {
    return absl::UnavailableError(absl::StrCat("rank ", peer,
                                               " is gone: it destroyed its communicator after ",
                                               operations, " operations"));
  }

  // Two tags per operation: contributions (phase 0), and results (phase 1). 12 bits of its number
  // and 16 bits of a hash of what it is: messages of different operations match only by chance (1
  // in 65536), so a rank that issues another operation than its peers waits, and takes in nothing
  // that is not meant for it.
  static uint32_t Tag(int64_t number, uint64_t hash, uint32_t phase) {
    const auto low = static_cast<uint32_t>(number % (1 << 12));
    return PeerWatch::kFirstFreeTag +
           ((static_cast<uint32_t>(hash % (1 << 16)) << 13) | (low << 1) | phase);
  }

  const GlooOptions options_;
  const std::unique_ptr<Mesh> mesh_;  // null when world_size is 1
  std::unique_ptr<PeerWatch> watch_;
  std::thread reducer_;
  std::thread finisher_;
  std::atomic<int> reducer_waits_for_{kNobody};
  std::atomic<int> finisher_waits_for_{kNobody};
  std::atomic<int64_t> bytes_sent_{0};

  absl::Mutex mu_;
  // Signalled when an operation is done.
  SteadyCondition finished_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  int64_t issued_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int64_t> in_flight_ ABSL_GUARDED_BY(mu_);
  std::map<int, int64_t> left_after_ ABSL_GUARDED_BY(mu_);  // peer -> its number of operations
  // The operations that each Thread has still to do.
  std::array<std::deque<std::shared_ptr<Operation>>, 2> queues_ ABSL_GUARDED_BY(mu_);
  bool told_ ABSL_GUARDED_BY(mu_) = false;      // the failure was sent to the peers
  bool closing_ ABSL_GUARDED_BY(mu_) = false;   // goodbye sent: failures are ignored
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;  // the threads end when their queue is empty
  ScratchPool scratch_ ABSL_GUARDED_BY(mu_);
  // Operations that failed, with their transfers and buffers: Gloo cannot cancel a message that is
  // partly sent; it would block the connection, also for the message about the failure.
  std::vector<std::shared_ptr<Operation>> broken_ ABSL_GUARDED_BY(mu_);
};

class GlooWork : public Work {
 public:
  GlooWork(GlooCommunicator* communicator, std::shared_ptr<Operation> operation)
      : communicator_(communicator), operation_(std::move(operation)) {}
  ~GlooWork() override {
    if (!waited_) communicator_->Wait(*operation_).IgnoreError();
  }
  absl::Status Wait() override {
    if (!waited_) result_ = communicator_->Wait(*operation_);
    waited_ = true;
    return result_;
  }

 private:
  GlooCommunicator* const communicator_;
  const std::shared_ptr<Operation> operation_;
  bool waited_ = false;
  absl::Status result_;
};

GlooCommunicator::~GlooCommunicator() {
  if (watch_ == nullptr) return;
  int64_t issued = 0;
  bool clean = false;
  {
    absl::MutexLock lock(&mu_);
    issued = issued_;
    clean = closing_ = failure_.ok() && in_flight_.empty();
  }
  if (clean) {
    watch_->SayGoodbye(issued);
  } else {
    Abort(absl::CancelledError("the communicator was destroyed with operations in flight"));
    absl::MutexLock lock(&mu_, absl::Condition(&told_));
  }
  watch_->WaitUntilHeard();
  mesh_->CancelFrom(0);
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (reducer_.joinable()) reducer_.join();
  if (finisher_.joinable()) finisher_.join();
  watch_.reset();
}

std::unique_ptr<Work> GlooCommunicator::Issue(OperationSpec spec) {
  if (absl::Status status = CheckArguments(spec, world_size()); !status.ok()) {
    return DoneWork(status);
  }
  auto operation = std::make_shared<Operation>();
  operation->spec = std::move(spec);
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    if (!failure_.ok()) return DoneWork(WithOperation(operation->spec, failure_));
    operation->number = issued_++;
    in_flight_.insert(operation->number);
    for (const auto& [peer, operations] : left_after_) {
      if (operation->number >= operations) status = LeftEarly(peer, operations);
    }
    const int64_t scratch = ScratchBytes(operation->spec, world_size());
    if (scratch > 0) operation->exchange.scratch = scratch_.Take(scratch);
  }
  const uint64_t hash = Hash(operation->spec);
  operation->exchange.contribution_tag = Tag(operation->number, hash, 0);
  operation->exchange.result_tag = Tag(operation->number, hash, 1);
  if (status.ok()) {
    status = PostExchange(operation->spec, world_size(), mesh_.get(), operation->exchange);
  }
  if (!status.ok()) {
    operation->broken = true;
    Fail(status);
  }
  if (world_size() == 1) {
    if (!operation->broken) AddContributions(operation->spec, 1, operation->exchange);
    Finish(operation);
  } else {
    Queue(operation->exchange.contributions.empty() ? kFinisher : kReducer, operation);
  }
  return std::make_unique<GlooWork>(this, std::move(operation));
}

void GlooCommunicator::Finish(std::shared_ptr<Operation> operation) {
  if (!operation->broken) {
    operation->exchange.contributions.clear();
    operation->exchange.transfers.clear();
    ReleaseTensors(operation->spec);
    bytes_sent_ += operation->exchange.bytes_sent;
  }
  absl::MutexLock lock(&mu_);
  in_flight_.erase(operation->number);
  operation->done = true;
  finished_.Changed();
  if (operation->broken) {
    operation->result = WithOperation(operation->spec, failure_);
    broken_.push_back(std::move(operation));
  } else if (operation->exchange.scratch.defined()) {
    scratch_.Give(std::move(operation->exchange.scratch));
  }
}

void GlooCommunicator::ReduceLoop() {
  while (auto operation = Next(kReducer)) {
    WaitFor(*operation, operation->exchange.contributions, reducer_waits_for_);
    if (!operation->broken) {
      AddContributions(operation->spec, world_size(), operation->exchange);
      const absl::Status status =
          PostReducedSlice(operation->spec, world_size(), mesh_.get(), operation->exchange);
      if (!status.ok()) {
        operation->broken = true;
        if (!absl::IsCancelled(status)) Fail(status);
      }
    }
    Queue(kFinisher, std::move(operation));
  }
}

void GlooCommunicator::FinishLoop() {
  while (auto operation = Next(kFinisher)) {
    WaitFor(*operation, operation->exchange.transfers, finisher_waits_for_);
    Finish(std::move(operation));
  }
}

std::shared_ptr<Operation> GlooCommunicator::Next(Thread thread) {
  const auto ready = [this, thread]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !queues_[thread].empty() || (stopping_ && in_flight_.empty());
  };
  absl::MutexLock lock(&mu_, absl::Condition(&ready));
  std::deque<std::shared_ptr<Operation>>& queue = queues_[thread];
  if (queue.empty()) return nullptr;
  auto operation = std::move(queue.front());
  queue.pop_front();
  return operation;
}

void GlooCommunicator::Queue(Thread thread, std::shared_ptr<Operation> operation) {
  absl::MutexLock lock(&mu_);
  queues_[thread].push_back(std::move(operation));
}

void GlooCommunicator::WaitFor(Operation& operation,
                               std::vector<std::unique_ptr<Transfer>>& transfers,
                               std::atomic<int>& waits_for) {
  if (operation.broken) return;
  for (auto& transfer : transfers) {
    waits_for = transfer->peer();
    const absl::Status status = transfer->Wait();
    waits_for = kNobody;
    if (status.ok()) continue;
    operation.broken = true;
    // Cancelled: another thread has failed the communicator and has set the cause.
    if (!absl::IsCancelled(status)) Fail(status);
    return;
  }
}

absl::Status GlooCommunicator::Wait(Operation& operation) {
  do {
    absl::MutexLock lock(&mu_);
    if (finished_.Await(mu_, absl::FromChrono(options_.timeout), [&] { return operation.done; })) {
      return operation.result;
    }
  } while (options_.watched && options_.watched());
  // The finisher holds the older operation.
  int peer = finisher_waits_for_;
  if (peer == kNobody) peer = reducer_waits_for_;
  Fail(absl::DeadlineExceededError(absl::StrCat(
      peer == kNobody ? std::string("a rank") : absl::StrCat("rank ", peer),
      " did not take part within ", absl::FormatDuration(absl::FromChrono(options_.timeout)))));
  absl::MutexLock lock(&mu_, absl::Condition(&operation.done));
  return operation.result;
}

void GlooCommunicator::Fail(const absl::Status& cause, const absl::Status& for_peers) {
  {
    absl::MutexLock lock(&mu_);
    if (!failure_.ok() || closing_) return;
    failure_ = cause;
  }
  if (watch_ == nullptr) return;
  watch_->TellFailure(for_peers);
  mesh_->CancelFrom(PeerWatch::kFirstFreeTag);
  absl::MutexLock lock(&mu_);
  told_ = true;
}

void GlooCommunicator::PeerLeft(int peer, int64_t operations) {
  {
    absl::MutexLock lock(&mu_);
    left_after_[peer] = operations;
    if (in_flight_.empty() || *in_flight_.rbegin() < operations) return;
  }
  Fail(LeftEarly(peer, operations));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions& options,
                                                                     RendezvousStore& store) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " is not a rank of ", options.world_size));
  }
  std::unique_ptr<Mesh> mesh;
  if (options.world_size > 1) {
    ASSIGN_OR_RETURN(mesh, CreateMesh(options, store));
    RETURN_IF_ERROR(ProveRanks(options, *mesh));
  }
  auto communicator = std::make_unique<GlooCommunicator>(options, std::move(mesh));
  RETURN_IF_ERROR(communicator->Start());
  return communicator;
}

}  // namespace muster::comm
