#include "worker/comm/gloo/gloo_communicator.h"

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/status/status.h"
#include "worker/comm/gloo/exchange.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/gloo/operations.h"
#include "worker/comm/gloo/peer_watch.h"
#include "worker/comm/gloo/proof.h"
#include "worker/comm/operation.h"
#include "worker/memory/memory_scope.h"

namespace muster::comm {
namespace {

// The tag of a message. Each operation has a tag for contributions (phase 0) and a tag for results
// (phase 1). A tag holds 12 bits of the operation's number and 16 bits of its hash. Messages of
// different operations therefore match only by chance (1 in 65536). A rank that issues another
// operation than its peers waits, and receives no data of other operations.
uint32_t Tag(int64_t number, uint64_t hash, uint32_t phase) {
  const auto low = static_cast<uint32_t>(number % (1 << 12));
  return PeerWatch::kFirstFreeTag +
         ((static_cast<uint32_t>(hash % (1 << 16)) << 13) | (low << 1) | phase);
}

// Memory for the contributions of sums, kept from step to step, because the first use of new pages
// costs as much as the sum itself. The pool never frees memory. A free piece serves any request
// that is not larger. So the pool allocates nothing more after the largest operations have been in
// flight. Thread-safe.
class ScratchPool {
 public:
  // Returns a piece of at least `bytes` bytes.
  at::Tensor Take(int64_t bytes) {
    absl::MutexLock lock(&mutex_);
    const auto it = free_.lower_bound(bytes);
    if (it == free_.end()) {
      const memory::MemoryScope scope(memory::Purpose::kBuckets);
      return at::empty({bytes}, at::TensorOptions(at::kByte));
    }
    at::Tensor tensor = std::move(it->second);
    free_.erase(it);
    return tensor;
  }

  void Give(at::Tensor tensor) {
    absl::MutexLock lock(&mutex_);
    const int64_t bytes = tensor.numel();
    free_.emplace(bytes, std::move(tensor));
  }

 private:
  absl::Mutex mutex_;
  std::multimap<int64_t, at::Tensor> free_ ABSL_GUARDED_BY(mutex_);  // by size
};

class GlooCommunicator : public IssuingCommunicator {
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
    finisher_.emplace([this](std::shared_ptr<Operation> operation) {
      WaitFor(*operation, *finisher_, operation->exchange.transfers);
      Finish(std::move(operation));
    });
    reducer_.emplace([this](std::shared_ptr<Operation> operation) {
      WaitFor(*operation, *reducer_, operation->exchange.contributions);
      Reduce(*operation);
      finisher_->Push(std::move(operation));
    });
    return absl::OkStatus();
  }

  ~GlooCommunicator() override;

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  c10::Device device() const override { return c10::kCPU; }

  int64_t bytes_sent() const override { return bytes_sent_; }

  void Abort(const absl::Status& why) override {
    Fail(why, absl::UnavailableError(absl::StrCat("rank ", rank(), " aborted: ", Message(why))));
  }

  // Called by GlooWork.
  absl::Status Wait(const Operation& operation);

 private:
  std::unique_ptr<Work> Issue(OperationSpec spec) override;
  void Reduce(Operation& operation);
  void Finish(std::shared_ptr<Operation> operation);
  // Called in `thread`. The first error fails the communicator and marks the operation as broken.
  void WaitFor(Operation& operation, OperationThread& thread,
               const std::vector<std::unique_ptr<Transfer>>& transfers);

  void Fail(const absl::Status& cause) { Fail(cause, cause); }
  void Fail(const absl::Status& cause, const absl::Status& for_peers);
  void PeerLeft(int peer, int64_t operations);

  const GlooOptions options_;
  const std::unique_ptr<Mesh> mesh_;  // null when world_size is 1, like all that Start makes
  Operations operations_;
  ScratchPool scratch_;
  std::atomic<int64_t> bytes_sent_{0};
  absl::Notification told_;  // the failure was sent to the peers
  std::unique_ptr<PeerWatch> watch_;
  std::optional<OperationThread> finisher_;
  std::optional<OperationThread> reducer_;  // gives operations to the finisher
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
  if (const auto operations = operations_.Close()) {
    watch_->SayGoodbye(*operations);
  } else {
    Abort(absl::CancelledError("the communicator was destroyed with operations in flight"));
    told_.WaitForNotification();
  }
  watch_->WaitUntilHeard();
  mesh_->CancelFrom(0);
  if (reducer_) reducer_->Stop();
  if (finisher_) finisher_->Stop();
  watch_.reset();
}

std::unique_ptr<Work> GlooCommunicator::Issue(OperationSpec spec) {
  if (absl::Status status = CheckArguments(spec, world_size()); !status.ok()) {
    return DoneWork(status);
  }
  auto operation = std::make_shared<Operation>();
  operation->spec = std::move(spec);
  if (const absl::Status failed = operations_.Begin(*operation); !failed.ok()) {
    return DoneWork(WithOperation(operation->spec, failed));
  }
  const int64_t scratch = ScratchBytes(operation->spec, world_size());
  if (scratch > 0) operation->exchange.scratch = scratch_.Take(scratch);
  const uint64_t hash = Hash(operation->spec);
  operation->exchange.contribution_tag = Tag(operation->number, hash, 0);
  operation->exchange.result_tag = Tag(operation->number, hash, 1);
  absl::Status status = operations_.CheckPeers(operation->number);
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
    (operation->exchange.contributions.empty() ? *finisher_ : *reducer_).Push(operation);
  }
  return std::make_unique<GlooWork>(this, std::move(operation));
}

void GlooCommunicator::Reduce(Operation& operation) {
  if (operation.broken) return;
  AddContributions(operation.spec, world_size(), operation.exchange);
  const absl::Status status =
      PostReducedSlice(operation.spec, world_size(), mesh_.get(), operation.exchange);
  if (status.ok()) return;
  operation.broken = true;
  if (!absl::IsCancelled(status)) Fail(status);
}

void GlooCommunicator::Finish(std::shared_ptr<Operation> operation) {
  at::Tensor scratch;
  if (!operation->broken) {
    operation->exchange.contributions.clear();
    operation->exchange.transfers.clear();
    ReleaseTensors(operation->spec);
    bytes_sent_ += operation->exchange.bytes_sent;
    scratch = std::move(operation->exchange.scratch);
  }
  // Given back before the operation is done, so that the next operation finds the memory.
  if (scratch.defined()) scratch_.Give(std::move(scratch));
  operations_.End(std::move(operation));
}

void GlooCommunicator::WaitFor(Operation& operation, OperationThread& thread,
                               const std::vector<std::unique_ptr<Transfer>>& transfers) {
  if (operation.broken) return;
  const absl::Status status = thread.WaitFor(transfers);
  if (status.ok()) return;
  operation.broken = true;
  // CANCELLED: another thread has failed the communicator and has set the cause.
  if (!absl::IsCancelled(status)) Fail(status);
}

absl::Status GlooCommunicator::Wait(const Operation& operation) {
  const absl::Duration limit = absl::FromChrono(options_.timeout);
  do {
    if (const auto result = operations_.Await(operation, limit)) return *result;
  } while (options_.watched && options_.watched());
  // The finisher comes first: its operation is the older one.
  std::optional<int> peer;
  if (finisher_) peer = finisher_->waits_for();
  if (!peer && reducer_) peer = reducer_->waits_for();
  Fail(absl::DeadlineExceededError(
      absl::StrCat(peer ? absl::StrCat("rank ", *peer) : std::string("a rank"),
                   " did not take part within ", absl::FormatDuration(limit))));
  return *operations_.Await(operation, absl::InfiniteDuration());
}

void GlooCommunicator::Fail(const absl::Status& cause, const absl::Status& for_peers) {
  if (!operations_.Fail(cause) || watch_ == nullptr) return;
  watch_->TellFailure(for_peers);
  mesh_->CancelFrom(PeerWatch::kFirstFreeTag);
  told_.Notify();
}

void GlooCommunicator::PeerLeft(int peer, int64_t operations) {
  if (const absl::Status left = operations_.PeerLeft(peer, operations); !left.ok()) Fail(left);
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
