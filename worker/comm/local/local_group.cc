#include "worker/comm/local/local_group.h"

#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "worker/comm/operation.h"

namespace muster::comm {
namespace {

using SpecsByRank = std::vector<std::optional<OperationSpec>>;  // by rank

char* Bytes(const at::Tensor& tensor) { return static_cast<char*>(tensor.mutable_data_ptr()); }

void AllReduce(const SpecsByRank& parts) {
  std::vector<const void*> sources;
  for (const auto& part : parts) sources.push_back(Bytes(part->output));
  const size_t bytes = parts[0]->output.nbytes();
  if (bytes == 0) return;
  std::vector<char> sum(bytes);
  TypedSum(*parts[0], sources, sum.data(), parts[0]->output.numel());
  for (const auto& part : parts) std::memcpy(Bytes(part->output), sum.data(), bytes);
}

// Works in place: an output is its rank's own part of the input, which no other rank's sum reads.
void ReduceScatter(const SpecsByRank& parts) {
  const int64_t elements = parts[0]->output.numel();
  if (elements == 0) return;
  for (const auto& to : parts) {
    std::vector<const void*> sources;
    for (const auto& part : parts) {
      sources.push_back(Bytes(part->input) + to->rank * elements * part->input.element_size());
    }
    TypedSum(*to, sources, Bytes(to->output), elements);
  }
}

void AllToAll(const SpecsByRank& parts) {
  for (const auto& to : parts) {
    char* out = Bytes(to->output);
    for (const auto& from : parts) {
      const auto& sizes = from->in_sizes;
      const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + to->rank, int64_t{0});
      const int64_t element = from->input.element_size(), bytes = sizes[to->rank] * element;
      if (bytes > 0) std::memcpy(out, Bytes(from->input) + begin * element, bytes);
      out += bytes;
    }
  }
}

void AllGather(const SpecsByRank& parts) {
  const size_t bytes = parts[0]->input.nbytes();
  for (const auto& to : parts) {
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      char* out = static_cast<char*>(to->output.mutable_data_ptr()) + rank * bytes;
      if (bytes > 0) std::memmove(out, parts[rank]->input.const_data_ptr(), bytes);
    }
  }
}

void Broadcast(const SpecsByRank& parts) {
  const OperationSpec& root = *parts[parts[0]->root];
  for (const auto& to : parts) {
    if (to->rank != root.rank && root.output.nbytes() > 0) {
      std::memcpy(to->output.mutable_data_ptr(), root.output.const_data_ptr(),
                  root.output.nbytes());
    }
  }
}

void Run(const SpecsByRank& parts) {
  switch (parts[0]->kind) {
    case OperationKind::kAllGather:
      return AllGather(parts);
    case OperationKind::kBroadcast:
      return Broadcast(parts);
    case OperationKind::kAllReduceSum:
      return AllReduce(parts);
    case OperationKind::kReduceScatterSum:
      return ReduceScatter(parts);
    case OperationKind::kAllToAll:
      return AllToAll(parts);
  }
}

absl::Status CheckSizesAgree(const SpecsByRank& parts) {
  for (const auto& from : parts) {
    for (const auto& to : parts) {
      const int64_t sent = from->in_sizes[to->rank], expected = to->out_sizes[from->rank];
      if (sent == expected) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", from->rank, " sends ", sent, " elements to rank ", to->rank,
                       ", which expects ", expected, " (in its ", Describe(*to), ")"));
    }
  }
  return absl::OkStatus();
}

// FAILED_PRECONDITION if the ranks issued different operations.
absl::Status CheckAgreement(const SpecsByRank& parts) {
  for (const auto& part : parts) {
    if (Shape(*part) != Shape(*parts[0])) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the ranks issued different operations: rank 0 ", Describe(*parts[0]), ": ",
          Shape(*parts[0]), "; rank ", part->rank, " ", Describe(*part), ": ", Shape(*part)));
    }
  }
  if (parts[0]->kind == OperationKind::kAllToAll) return CheckSizesAgree(parts);
  return absl::OkStatus();
}

// One operation of the group: the n-th operation of every rank.
struct Rendezvous {
  explicit Rendezvous(int world_size) : parts(world_size) {}
  SpecsByRank parts;
  int arrived = 0;
  bool done = false;
  absl::Status result;
};

// Shared by the ranks of one group.
class Hub {
 public:
  explicit Hub(int world_size)
      : world_size_(world_size),
        issued_(world_size),
        bytes_sent_(world_size),
        left_after_(world_size) {}

  int world_size() const { return world_size_; }

  int64_t bytes_sent(int rank) const {
    absl::MutexLock lock(&mu_);
    return bytes_sent_[rank];
  }

  // Adds the rank's part of its next operation. The last rank to arrive runs the operation, in its
  // own thread and outside the lock.
  std::shared_ptr<Rendezvous> Join(const OperationSpec& spec) {
    std::shared_ptr<Rendezvous> rendezvous;
    {
      absl::MutexLock lock(&mu_);
      const int64_t number = issued_[spec.rank]++;
      auto& slot = open_[number];
      if (slot == nullptr) slot = std::make_shared<Rendezvous>(world_size_);
      rendezvous = slot;
      rendezvous->parts[spec.rank] = spec;
      FailIfSomebodyLeft();
      if (!failure_.ok()) {
        Finish(*rendezvous, failure_);
        if (++rendezvous->arrived == world_size_) open_.erase(number);
        return rendezvous;
      }
      if (++rendezvous->arrived < world_size_) return rendezvous;
      open_.erase(number);
    }
    absl::Status status = CheckAgreement(rendezvous->parts);
    if (status.ok()) Run(rendezvous->parts);
    absl::MutexLock lock(&mu_);
    if (status.ok()) {
      for (const auto& part : rendezvous->parts) {
        bytes_sent_[part->rank] += BytesToSend(*part, world_size_);
      }
    }
    Finish(*rendezvous, status);
    if (!status.ok()) Fail(status);
    return rendezvous;
  }

  absl::Status Wait(Rendezvous& rendezvous, int rank) {
    absl::MutexLock lock(&mu_, absl::Condition(&rendezvous.done));
    if (!rendezvous.result.ok() && aborter_ == rank) return abort_cause_;
    return rendezvous.result;
  }

  void Leave(int rank) {
    absl::MutexLock lock(&mu_);
    left_after_[rank] = issued_[rank];
    FailIfSomebodyLeft();
  }

  void Abort(int rank, const absl::Status& why) {
    absl::MutexLock lock(&mu_);
    if (!failure_.ok()) return;
    aborter_ = rank;
    abort_cause_ = why;
    Fail(absl::UnavailableError(
        absl::StrCat("rank ", rank, " aborted: ", std::string(why.message()))));
  }

 private:
  // Fails the group if a rank has left without issuing an operation that is open.
  void FailIfSomebodyLeft() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (open_.empty()) return;
    for (int rank = 0; rank < world_size_; ++rank) {
      if (left_after_[rank] && open_.rbegin()->first >= *left_after_[rank]) {
        Fail(absl::UnavailableError(absl::StrCat("rank ", rank,
                                                 " is gone: it destroyed its communicator after ",
                                                 *left_after_[rank], " operations")));
      }
    }
  }

  void Fail(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!failure_.ok()) return;
    failure_ = cause;
    for (auto& [number, rendezvous] : open_) Finish(*rendezvous, failure_);
  }

  void Finish(Rendezvous& rendezvous, const absl::Status& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (rendezvous.done) return;
    rendezvous.done = true;
    rendezvous.result = result;
    rendezvous.parts.assign(world_size_, std::nullopt);
  }

  const int world_size_;
  mutable absl::Mutex mu_;
  std::map<int64_t, std::shared_ptr<Rendezvous>> open_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> issued_ ABSL_GUARDED_BY(mu_);      // operations per rank
  std::vector<int64_t> bytes_sent_ ABSL_GUARDED_BY(mu_);  // per rank
  std::vector<std::optional<int64_t>> left_after_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);  // for all ranks except the aborter
  int aborter_ ABSL_GUARDED_BY(mu_) = -1;      // the rank that called Abort
  absl::Status abort_cause_ ABSL_GUARDED_BY(mu_);
};

class LocalWork : public Work {
 public:
  LocalWork(std::shared_ptr<Hub> hub, std::shared_ptr<Rendezvous> rendezvous, OperationSpec spec)
      : hub_(std::move(hub)), rendezvous_(std::move(rendezvous)), spec_(std::move(spec)) {}
  ~LocalWork() override { hub_->Wait(*rendezvous_, spec_.rank).IgnoreError(); }

  absl::Status Wait() override {
    return WithOperation(spec_, hub_->Wait(*rendezvous_, spec_.rank));
  }

 private:
  const std::shared_ptr<Hub> hub_;
  const std::shared_ptr<Rendezvous> rendezvous_;
  const OperationSpec spec_;
};

class LocalCommunicator : public IssuingCommunicator {
 public:
  LocalCommunicator(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~LocalCommunicator() override { hub_->Leave(rank_); }

  int rank() const override { return rank_; }
  int world_size() const override { return hub_->world_size(); }
  c10::Device device() const override { return c10::kCPU; }

  int64_t bytes_sent() const override { return hub_->bytes_sent(rank_); }

  void Abort(const absl::Status& why) override { hub_->Abort(rank_, why); }

 private:
  std::unique_ptr<Work> Issue(OperationSpec spec) override {
    if (absl::Status status = CheckArguments(spec, world_size()); !status.ok()) {
      return DoneWork(status);
    }
    auto rendezvous = hub_->Join(spec);
    ReleaseTensors(spec);  // the rendezvous holds them until the operation is done
    return std::make_unique<LocalWork>(hub_, std::move(rendezvous), std::move(spec));
  }

  const std::shared_ptr<Hub> hub_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> LocalGroup::Create(int world_size) {
  auto hub = std::make_shared<Hub>(world_size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.push_back(std::make_unique<LocalCommunicator>(hub, rank));
  }
  return ranks;
}

}  // namespace muster::comm
