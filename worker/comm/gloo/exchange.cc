#include "worker/comm/gloo/exchange.h"

#include <cstring>
#include <utility>

#include "common/status/status.h"
#include "worker/comm/rank_sum.h"
#include "worker/comm/slices.h"

namespace muster::comm {
namespace {

char* Bytes(const at::Tensor& tensor) { return static_cast<char*>(tensor.mutable_data_ptr()); }

// One operation's view of the mesh. Messages without bytes are not sent.
class Poster {
 public:
  Poster(const OperationSpec& spec, int world_size, Mesh* mesh, Exchange& exchange)
      : spec_(spec), world_size_(world_size), mesh_(mesh), exchange_(exchange) {}

  absl::Status AllGather() {
    const int64_t bytes = spec_.input.nbytes();
    char* out = Bytes(spec_.output);
    for (int distance = 1; distance < world_size_; ++distance) {
      const int from = (spec_.rank + world_size_ - distance) % world_size_;
      RETURN_IF_ERROR(Receive(exchange_.transfers, out + from * bytes, bytes, from,
                              exchange_.result_tag));
    }
    RETURN_IF_ERROR(SendToAll(Bytes(spec_.input), bytes));
    if (bytes > 0) std::memmove(out + spec_.rank * bytes, Bytes(spec_.input), bytes);
    return absl::OkStatus();
  }

  absl::Status Broadcast() {
    const int64_t bytes = spec_.output.nbytes();
    if (spec_.rank == spec_.root) return SendToAll(Bytes(spec_.output), bytes);
    return Receive(exchange_.transfers, Bytes(spec_.output), bytes, spec_.root,
                   exchange_.result_tag);
  }

  // Every rank sends slice j of its buffer to rank j, which adds them and sends the sum back. The sum of
  // slice j may be received straight into the buffer that slice j is still being sent from: rank j can
  // only send it when it has received all of it.
  absl::Status AllReduce() {
    char* data = Bytes(spec_.output);
    char* scratch = exchange_.scratch.defined() ? Bytes(exchange_.scratch) : nullptr;
    const int64_t own_bytes = SliceOfRank(spec_.rank).size() * element();
    for (int peer = 0; peer < world_size_; ++peer) {
      if (peer == spec_.rank) continue;
      RETURN_IF_ERROR(Receive(exchange_.contributions, scratch, own_bytes, peer,
                              exchange_.contribution_tag));
      if (own_bytes > 0) scratch += own_bytes;
      const Slice theirs = SliceOfRank(peer);
      RETURN_IF_ERROR(Receive(exchange_.transfers, data + theirs.begin * element(),
                              theirs.size() * element(), peer, exchange_.result_tag));
    }
    for (int distance = 1; distance < world_size_; ++distance) {
      const int peer = (spec_.rank + distance) % world_size_;
      const Slice theirs = SliceOfRank(peer);
      RETURN_IF_ERROR(Send(data + theirs.begin * element(), theirs.size() * element(), peer,
                           exchange_.contribution_tag));
    }
    return absl::OkStatus();
  }

  absl::Status ReducedSlice() {
    const Slice own = SliceOfRank(spec_.rank);
    return SendToAll(Bytes(spec_.output) + own.begin * element(), own.size() * element());
  }

 private:
  int64_t element() const { return spec_.output.element_size(); }
  Slice SliceOfRank(int rank) const { return SliceOf(spec_.output.numel(), rank, world_size_); }

  absl::Status SendToAll(const char* data, int64_t bytes) {
    for (int distance = 1; distance < world_size_; ++distance) {
      RETURN_IF_ERROR(
          Send(data, bytes, (spec_.rank + distance) % world_size_, exchange_.result_tag));
    }
    return absl::OkStatus();
  }

  absl::Status Send(const char* data, int64_t bytes, int peer, uint32_t tag) {
    if (bytes == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(auto transfer, mesh_->Send(data, bytes, peer, tag));
    exchange_.transfers.push_back(std::move(transfer));
    return absl::OkStatus();
  }

  absl::Status Receive(std::vector<std::unique_ptr<Transfer>>& to, char* data, int64_t bytes,
                       int peer, uint32_t tag) {
    if (bytes == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(auto transfer, mesh_->Receive(data, bytes, peer, tag));
    to.push_back(std::move(transfer));
    return absl::OkStatus();
  }

  const OperationSpec& spec_;
  const int world_size_;
  Mesh* const mesh_;
  Exchange& exchange_;
};

template <typename T>
void Add(const OperationSpec& spec, int world_size, const at::Tensor& scratch) {
  T* data = static_cast<T*>(spec.output.mutable_data_ptr());
  const Slice own = SliceOf(spec.output.numel(), spec.rank, world_size);
  if (own.size() == 0) return;
  const T* contribution =
      scratch.defined() ? static_cast<const T*>(scratch.const_data_ptr()) : nullptr;
  std::vector<const T*> sources;
  for (int rank = 0; rank < world_size; ++rank) {
    sources.push_back(rank == spec.rank ? data + own.begin : contribution);
    if (rank != spec.rank) contribution += own.size();
  }
  RankOrderedSum(sources, data + own.begin, own.size(), spec.divide_by);
}

}  // namespace

int64_t ScratchBytes(const OperationSpec& spec, int world_size) {
  if (spec.kind != OperationKind::kAllReduceSum) return 0;
  return (world_size - 1) * SliceOf(spec.output.numel(), spec.rank, world_size).size() *
         spec.output.element_size();
}

absl::Status PostExchange(const OperationSpec& spec, int world_size, Mesh* mesh,
                          Exchange& exchange) {
  Poster poster(spec, world_size, mesh, exchange);
  switch (spec.kind) {
    case OperationKind::kAllGather:
      return poster.AllGather();
    case OperationKind::kAllReduceSum:
      return poster.AllReduce();
    case OperationKind::kBroadcast:
      return poster.Broadcast();
  }
  return absl::OkStatus();
}

void AddContributions(const OperationSpec& spec, int world_size, const Exchange& exchange) {
  if (spec.kind != OperationKind::kAllReduceSum) return;
  switch (spec.output.scalar_type()) {
    case at::kFloat:
      return Add<float>(spec, world_size, exchange.scratch);
    case at::kDouble:
      return Add<double>(spec, world_size, exchange.scratch);
    default:
      return Add<int64_t>(spec, world_size, exchange.scratch);
  }
}

absl::Status PostReducedSlice(const OperationSpec& spec, int world_size, Mesh* mesh,
                              Exchange& exchange) {
  return Poster(spec, world_size, mesh, exchange).ReducedSlice();
}

}  // namespace muster::comm
