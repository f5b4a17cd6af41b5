#include "worker/comm/gloo/gloo_communicator.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/status/status.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/gloo/peer_watch.h"
#include "worker/comm/operation.h"
#include "worker/comm/rank_sum.h"
#include "worker/comm/slices.h"

namespace muster::comm {
namespace {

constexpr int kNobody = -1;

char* Bytes(const at::Tensor& tensor) { return static_cast<char*>(tensor.mutable_data_ptr()); }

// Memory for contributions, kept from step to step: fresh pages cost as much as the sum itself.
// One thread at a time.
class ScratchPool {
 public:
  at::Tensor Take(int64_t bytes) {
    for (auto it = free_.lower_bound(bytes); it != free_.end(); ++it) {
      at::Tensor tensor = std::move(it->second);
      free_.erase(it);
      return tensor;
    }
    return at::empty({bytes}, at::TensorOptions(at::kByte));
  }
  void Give(at::Tensor tensor) {
    const int64_t bytes = tensor.numel();
    free_.emplace(bytes, std::move(tensor));
  }

 private:
  std::multimap<int64_t, at::Tensor> free_;
};

// One collective in flight. Which thread may touch it goes with the queues: the issuing thread, then
// (a reduction) the reducing one, then the finishing one.
struct Operation {
  OperationSpec spec;
  int64_t number = 0;
  at::Tensor scratch;  // holds the contributions; before the transfers, which write to it
  std::vector<std::unique_ptr<Transfer>> contributions;  // to reduce, in rank order, own rank left out
  std::vector<std::unique_ptr<Transfer>> transfers;      // everything else
  bool broken = false;                                   // some transfer failed or was never posted

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

  std::unique_ptr<Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                  OpLabel label) override {
    return Issue({OperationKind::kAllGather, label, rank(), out, in});
  }
  std::unique_ptr<Work> AllReduceSum(const at::Tensor& flat, OpLabel label,
                                     double divide_by) override {
    return Issue({OperationKind::kAllReduceSum, label, rank(), flat, {}, 0, divide_by});
  }
  std::unique_ptr<Work> Broadcast(const at::Tensor& flat, int root, OpLabel label) override {
    return Issue({OperationKind::kBroadcast, label, rank(), flat, {}, root});
  }

  void Abort(const absl::Status& why) override {
    Fail(why, absl::UnavailableError(absl::StrCat("rank ", rank(), " aborted: ", Message(why))));
  }

  // Called by Work.
  absl::Status Wait(Operation& operation);

 private:
  std::unique_ptr<Work> Issue(OperationSpec spec);

  // Post what an operation sends and receives. In the issuing thread.
  absl::Status Post(Operation& operation);
  absl::Status PostAllGather(Operation& operation);
  absl::Status PostAllReduce(Operation& operation);
  absl::Status PostBroadcast(Operation& operation);
  absl::Status PostReducedSlice(Operation& operation);  // in the reducing thread

  absl::Status Send(Operation& operation, const void* data, size_t bytes, int peer, uint32_t tag);
  absl::Status Receive(std::vector<std::unique_ptr<Transfer>>& to, void* data, size_t bytes,
                       int peer, uint32_t tag);

  void ReduceLoop();
  void FinishLoop();
  void Reduce(Operation& operation);
  void Finish(std::shared_ptr<Operation> operation);
  std::shared_ptr<Operation> Next(std::deque<std::shared_ptr<Operation>>& queue);
  void Queue(std::deque<std::shared_ptr<Operation>>& queue, std::shared_ptr<Operation> operation);
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

  // Two tags per operation: contributions, and results.
  static uint32_t Tag(int64_t number, int phase) {
    return PeerWatch::kFirstFreeTag +
           static_cast<uint32_t>((2 * number + phase) % (int64_t{1} << 30));
  }

  const GlooOptions options_;
  const std::unique_ptr<Mesh> mesh_;  // null when world_size is 1
  std::unique_ptr<PeerWatch> watch_;
  std::thread reducer_;
  std::thread finisher_;
  std::atomic<int> reducer_waits_for_{kNobody};
  std::atomic<int> finisher_waits_for_{kNobody};

  absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  int64_t issued_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int64_t> in_flight_ ABSL_GUARDED_BY(mu_);
  std::map<int, int64_t> left_after_ ABSL_GUARDED_BY(mu_);  // peer -> its number of operations
  std::deque<std::shared_ptr<Operation>> to_reduce_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<Operation>> to_finish_ ABSL_GUARDED_BY(mu_);
  bool told_ ABSL_GUARDED_BY(mu_) = false;      // the peers were told of the failure
  bool closing_ ABSL_GUARDED_BY(mu_) = false;   // saying goodbye: failures do not matter any more
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;  // the threads end when their queue is empty
  ScratchPool scratch_ ABSL_GUARDED_BY(mu_);
  // Operations that failed, with their transfers and buffers: Gloo cannot take back a message that is
  // half sent, and would block the connection, also for the news of the failure.
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
  }
  if (status.ok()) status = Post(*operation);
  if (!status.ok()) {
    operation->broken = true;
    Fail(status);
  }
  if (world_size() == 1) {
    Reduce(*operation);
    Finish(operation);
  } else {
    Queue(operation->contributions.empty() ? to_finish_ : to_reduce_, operation);
  }
  return std::make_unique<GlooWork>(this, std::move(operation));
}

absl::Status GlooCommunicator::Post(Operation& operation) {
  switch (operation.spec.kind) {
    case OperationKind::kAllGather:
      return PostAllGather(operation);
    case OperationKind::kAllReduceSum:
      return PostAllReduce(operation);
    case OperationKind::kBroadcast:
      return PostBroadcast(operation);
  }
  return absl::OkStatus();
}

absl::Status GlooCommunicator::Send(Operation& operation, const void* data, size_t bytes, int peer,
                                    uint32_t tag) {
  if (bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto transfer, mesh_->Send(data, bytes, peer, tag));
  operation.transfers.push_back(std::move(transfer));
  return absl::OkStatus();
}

absl::Status GlooCommunicator::Receive(std::vector<std::unique_ptr<Transfer>>& to, void* data,
                                       size_t bytes, int peer, uint32_t tag) {
  if (bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto transfer, mesh_->Receive(data, bytes, peer, tag));
  to.push_back(std::move(transfer));
  return absl::OkStatus();
}

absl::Status GlooCommunicator::PostAllGather(Operation& operation) {
  const int64_t bytes = operation.spec.input.nbytes();
  char* out = Bytes(operation.spec.output);
  const char* in = Bytes(operation.spec.input);
  const uint32_t tag = Tag(operation.number, 1);
  for (int distance = 1; distance < world_size(); ++distance) {
    const int from = (rank() + world_size() - distance) % world_size();
    RETURN_IF_ERROR(Receive(operation.transfers, out + from * bytes, bytes, from, tag));
  }
  for (int distance = 1; distance < world_size(); ++distance) {
    RETURN_IF_ERROR(Send(operation, in, bytes, (rank() + distance) % world_size(), tag));
  }
  if (bytes > 0) std::memmove(out + rank() * bytes, in, bytes);
  return absl::OkStatus();
}

absl::Status GlooCommunicator::PostBroadcast(Operation& operation) {
  const int64_t bytes = operation.spec.output.nbytes();
  char* data = Bytes(operation.spec.output);
  const uint32_t tag = Tag(operation.number, 1);
  if (rank() != operation.spec.root) {
    return Receive(operation.transfers, data, bytes, operation.spec.root, tag);
  }
  for (int distance = 1; distance < world_size(); ++distance) {
    RETURN_IF_ERROR(Send(operation, data, bytes, (rank() + distance) % world_size(), tag));
  }
  return absl::OkStatus();
}

// Every rank sends slice j of its buffer to rank j, which adds them (ReduceLoop) and sends the result
// back. The result of slice j may be received straight into the buffer that slice j is still being
// sent from: rank j can only send it when it has received all of it.
absl::Status GlooCommunicator::PostAllReduce(Operation& operation) {
  const at::Tensor& flat = operation.spec.output;
  const int64_t element = flat.element_size();
  char* data = Bytes(flat);
  const Slice own = SliceOf(flat.numel(), rank(), world_size());
  const int64_t own_bytes = own.size() * element;
  if (own_bytes > 0 && world_size() > 1) {
    absl::MutexLock lock(&mu_);
    operation.scratch = scratch_.Take((world_size() - 1) * own_bytes);
  }
  int64_t offset = 0;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank()) continue;
    if (own_bytes > 0) {
      RETURN_IF_ERROR(Receive(operation.contributions, Bytes(operation.scratch) + offset, own_bytes,
                              peer, Tag(operation.number, 0)));
    }
    offset += own_bytes;
    const Slice theirs = SliceOf(flat.numel(), peer, world_size());
    RETURN_IF_ERROR(Receive(operation.transfers, data + theirs.begin * element,
                            theirs.size() * element, peer, Tag(operation.number, 1)));
  }
  for (int distance = 1; distance < world_size(); ++distance) {
    const int peer = (rank() + distance) % world_size();
    const Slice theirs = SliceOf(flat.numel(), peer, world_size());
    RETURN_IF_ERROR(Send(operation, data + theirs.begin * element, theirs.size() * element, peer,
                         Tag(operation.number, 0)));
  }
  return absl::OkStatus();
}

absl::Status GlooCommunicator::PostReducedSlice(Operation& operation) {
  const at::Tensor& flat = operation.spec.output;
  const int64_t element = flat.element_size();
  const Slice own = SliceOf(flat.numel(), rank(), world_size());
  for (int distance = 1; distance < world_size(); ++distance) {
    RETURN_IF_ERROR(Send(operation, Bytes(flat) + own.begin * element, own.size() * element,
                         (rank() + distance) % world_size(), Tag(operation.number, 1)));
  }
  return absl::OkStatus();
}

template <typename T>
void AddContributions(const OperationSpec& spec, const at::Tensor& scratch, int world_size) {
  T* data = static_cast<T*>(spec.output.mutable_data_ptr());
  const Slice own = SliceOf(spec.output.numel(), spec.rank, world_size);
  const T* contribution =
      scratch.defined() ? static_cast<const T*>(scratch.const_data_ptr()) : nullptr;
  std::vector<const T*> sources;
  for (int rank = 0; rank < world_size; ++rank) {
    sources.push_back(rank == spec.rank ? data + own.begin : contribution);
    if (rank != spec.rank) contribution += own.size();
  }
  RankOrderedSum(sources, data + own.begin, own.size(), spec.divide_by);
}

void GlooCommunicator::Reduce(Operation& operation) {
  const OperationSpec& spec = operation.spec;
  if (operation.broken || spec.kind != OperationKind::kAllReduceSum) return;
  switch (spec.output.scalar_type()) {
    case at::kFloat:
      return AddContributions<float>(spec, operation.scratch, world_size());
    case at::kDouble:
      return AddContributions<double>(spec, operation.scratch, world_size());
    default:
      return AddContributions<int64_t>(spec, operation.scratch, world_size());
  }
}

void GlooCommunicator::Finish(std::shared_ptr<Operation> operation) {
  if (!operation->broken) {
    operation->contributions.clear();
    operation->transfers.clear();
  }
  absl::MutexLock lock(&mu_);
  in_flight_.erase(operation->number);
  operation->done = true;
  if (operation->broken) {
    operation->result = WithOperation(operation->spec, failure_);
    broken_.push_back(std::move(operation));
  } else if (operation->scratch.defined()) {
    scratch_.Give(std::move(operation->scratch));
  }
}

void GlooCommunicator::ReduceLoop() {
  while (auto operation = Next(to_reduce_)) {
    WaitFor(*operation, operation->contributions, reducer_waits_for_);
    Reduce(*operation);
    if (!operation->broken) {
      if (absl::Status status = PostReducedSlice(*operation); !status.ok()) {
        operation->broken = true;
        if (!absl::IsCancelled(status)) Fail(status);
      }
    }
    Queue(to_finish_, std::move(operation));
  }
}

void GlooCommunicator::FinishLoop() {
  while (auto operation = Next(to_finish_)) {
    WaitFor(*operation, operation->transfers, finisher_waits_for_);
    Finish(std::move(operation));
  }
}

std::shared_ptr<Operation> GlooCommunicator::Next(
    std::deque<std::shared_ptr<Operation>>& queue) {
  const auto ready = [this, &queue]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !queue.empty() || (stopping_ && in_flight_.empty());
  };
  absl::MutexLock lock(&mu_, absl::Condition(&ready));
  if (queue.empty()) return nullptr;
  auto operation = std::move(queue.front());
  queue.pop_front();
  return operation;
}

void GlooCommunicator::Queue(std::deque<std::shared_ptr<Operation>>& queue,
                             std::shared_ptr<Operation> operation) {
  absl::MutexLock lock(&mu_);
  queue.push_back(std::move(operation));
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
    // Cancelled: somebody else has failed the communicator, and knows why.
    if (!absl::IsCancelled(status)) Fail(status);
    return;
  }
}

absl::Status GlooCommunicator::Wait(Operation& operation) {
  {
    absl::MutexLock lock(&mu_);
    if (mu_.AwaitWithTimeout(absl::Condition(&operation.done),
                             absl::FromChrono(options_.timeout))) {
      return operation.result;
    }
  }
  // The finisher holds the older operation.
  int peer = finisher_waits_for_;
  if (peer == kNobody) peer = reducer_waits_for_;
  Fail(absl::DeadlineExceededError(absl::StrCat(
      peer == kNobody ? std::string("somebody") : absl::StrCat("rank ", peer),
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
  }
  auto communicator = std::make_unique<GlooCommunicator>(options, std::move(mesh));
  RETURN_IF_ERROR(communicator->Start());
  return communicator;
}

}  // namespace muster::comm
