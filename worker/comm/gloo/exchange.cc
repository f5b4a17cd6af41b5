#include "worker/comm/gloo/exchange.h"

#include <cstring>
#include <utility>

#include "common/status/status.h"
#include "worker/comm/slices.h"

namespace muster::comm {
namespace {

char* Bytes(const at::Tensor& tensor) { return static_cast<char*>(tensor.mutable_data_ptr()); }

bool IsSum(const OperationSpec& spec) {
  return spec.kind == OperationKind::kAllReduceSum || spec.kind == OperationKind::kReduceScatterSum;
}

// The elements that this rank adds up: its slice of the buffer (all-reduce), or the whole output.
Slice OwnSlice(const OperationSpec& spec, int world_size) {
  if (spec.kind == OperationKind::kReduceScatterSum) return {0, spec.output.numel()};
  return SliceOf(spec.output.numel(), spec.rank, world_size);
}

// Returns whether the output holds another rank's contribution until the sum overwrites it.
bool OutputTakesAContribution(const OperationSpec& spec) {
  if (spec.kind != OperationKind::kReduceScatterSum) return false;
  const bool in_place = Bytes(spec.output) ==
                        Bytes(spec.input) + spec.rank * static_cast<int64_t>(spec.output.nbytes());
  return spec.output.scalar_type() == spec.input.scalar_type() && !in_place;
}

// The messages of one operation, posted in the mesh. Messages without bytes are not sent.
class Poster {
 public:
  Poster(const OperationSpec& spec, int world_size, Mesh* mesh, Exchange& exchange)
      : spec_(spec), world_size_(world_size), mesh_(mesh), exchange_(exchange) {}

  absl::Status AllGather() {
    const int64_t bytes = spec_.input.nbytes();
    char* out = Bytes(spec_.output);
    for (int distance = 1; distance < world_size_; ++distance) {
      const int from = (spec_.rank + world_size_ - distance) % world_size_;
      RETURN_IF_ERROR(
          Receive(exchange_.transfers, out + from * bytes, bytes, from, exchange_.result_tag));
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

  // Every rank sends slice j of its buffer to rank j. Rank j adds the slices and sends the sum
  // back. The sum of slice j may arrive in the buffer from which slice j is sent: rank j sends the
  // sum only when it has received the whole slice.
  absl::Status AllReduce() {
    char* data = Bytes(spec_.output);
    const Slice own = SliceOfRank(spec_.rank);
    RETURN_IF_ERROR(
        ReceiveContributions(data + own.begin * element(), own.size() * element(), nullptr));
    for (int peer = 0; peer < world_size_; ++peer) {
      if (peer == spec_.rank) continue;
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

  // The same as the first half of an all-reduce, with equal parts.
  absl::Status ReduceScatter() {
    const int64_t bytes = spec_.output.numel() * spec_.input.element_size();
    const char* in = Bytes(spec_.input);
    RETURN_IF_ERROR(
        ReceiveContributions(in + spec_.rank * bytes, bytes,
                             OutputTakesAContribution(spec_) ? Bytes(spec_.output) : nullptr));
    for (int distance = 1; distance < world_size_; ++distance) {
      const int peer = (spec_.rank + distance) % world_size_;
      RETURN_IF_ERROR(Send(in + peer * bytes, bytes, peer, exchange_.contribution_tag));
    }
    return absl::OkStatus();
  }

  absl::Status AllToAll() {
    char* out = Bytes(spec_.output);
    char* own = nullptr;
    for (int peer = 0; peer < world_size_; ++peer) {
      const int64_t bytes = spec_.out_sizes[peer] * element();
      if (peer == spec_.rank) {
        own = out;
      } else {
        RETURN_IF_ERROR(Receive(exchange_.transfers, out, bytes, peer, exchange_.result_tag));
      }
      out += bytes;
    }
    std::vector<const char*> parts;
    const char* in = Bytes(spec_.input);
    for (int64_t size : spec_.in_sizes) {
      parts.push_back(in);
      in += size * element();
    }
    for (int distance = 1; distance < world_size_; ++distance) {
      const int peer = (spec_.rank + distance) % world_size_;
      RETURN_IF_ERROR(
          Send(parts[peer], spec_.in_sizes[peer] * element(), peer, exchange_.result_tag));
    }
    const int64_t own_bytes = spec_.in_sizes[spec_.rank] * element();
    if (own_bytes > 0) std::memcpy(own, parts[spec_.rank], own_bytes);
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

  // Receives the other ranks' contributions to this rank's slice; the first in `room` if not null.
  absl::Status ReceiveContributions(const char* own, int64_t bytes, char* room) {
    char* scratch = exchange_.scratch.defined() ? Bytes(exchange_.scratch) : nullptr;
    for (int peer = 0; peer < world_size_; ++peer) {
      if (peer == spec_.rank) {
        exchange_.sources.push_back(own);
        continue;
      }
      char* to = std::exchange(room, nullptr);
      if (to == nullptr && scratch != nullptr) {
        to = scratch;
        scratch += bytes;
      }
      exchange_.sources.push_back(to);
      RETURN_IF_ERROR(
          Receive(exchange_.contributions, to, bytes, peer, exchange_.contribution_tag));
    }
    return absl::OkStatus();
  }

  absl::Status Send(const char* data, int64_t bytes, int peer, uint32_t tag) {
    if (bytes == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(auto transfer, mesh_->Send(data, bytes, peer, tag));
    exchange_.transfers.push_back(std::move(transfer));
    exchange_.bytes_sent += bytes;
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

}  // namespace

int64_t ScratchBytes(const OperationSpec& spec, int world_size) {
  if (!IsSum(spec) || world_size == 1) return 0;
  const at::Tensor& contributed = spec.input.defined() ? spec.input : spec.output;
  const int contributions = world_size - 1 - (OutputTakesAContribution(spec) ? 1 : 0);
  return contributions * OwnSlice(spec, world_size).size() * contributed.element_size();
}

absl::Status PostExchange(const OperationSpec& spec, int world_size, Mesh* mesh,
                          Exchange& exchange) {
  Poster poster(spec, world_size, mesh, exchange);
  switch (spec.kind) {
    case OperationKind::kAllGather:
      return poster.AllGather();
    case OperationKind::kAllReduceSum:
      return poster.AllReduce();
    case OperationKind::kReduceScatterSum:
      return poster.ReduceScatter();
    case OperationKind::kAllToAll:
      return poster.AllToAll();
    case OperationKind::kBroadcast:
      return poster.Broadcast();
  }
  return absl::OkStatus();
}

void AddContributions(const OperationSpec& spec, int world_size, const Exchange& exchange) {
  const Slice own = OwnSlice(spec, world_size);
  if (!IsSum(spec) || own.size() == 0) return;
  TypedSum(spec, exchange.sources, Bytes(spec.output) + own.begin * spec.output.element_size(),
           own.size());
}

absl::Status PostReducedSlice(const OperationSpec& spec, int world_size, Mesh* mesh,
                              Exchange& exchange) {
  if (spec.kind != OperationKind::kAllReduceSum) return absl::OkStatus();
  return Poster(spec, world_size, mesh, exchange).ReducedSlice();
}

}  // namespace muster::comm
