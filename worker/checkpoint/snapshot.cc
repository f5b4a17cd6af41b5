#include "worker/checkpoint/snapshot.h"

#include <optional>
#include <utility>
#include <vector>

#include "c10/core/ScalarType.h"
#include "worker/device/event.h"
#include "worker/device/memory.h"

namespace muster::checkpoint {
State Snapshot(const State& state, int rank) {
  std::vector<const HeldPiece*> held(state.items.size());
  for (const HeldPiece& piece : state.held) held[piece.item] = &piece;
  State copy{.items = state.items, .written = state.written, .held = {}};
  std::optional<c10::Device> device;
  for (const layout::Range& range : state.written.holders[rank]) {
    const HeldPiece* const piece = held[range.parameter];
    if (piece == nullptr || range.begin < piece->begin ||
        range.end > piece->begin + piece->tensor.numel()) {
      continue;
    }
    const at::Tensor part = piece->tensor.detach().view({-1}).narrow(0, range.begin - piece->begin,
                                                                     range.end - range.begin);
    at::Tensor own = device::HostLike(part);
    device::CopyAll(own, part);
    if (!part.is_cpu()) device = part.device();
    copy.held.push_back({static_cast<size_t>(range.parameter), range.begin, std::move(own)});
  }
  if (device.has_value()) device::Event::Now(*device).Await();
  return copy;
}

int64_t BytesWritten(const State& state, int rank) {
  int64_t bytes = 0;
  for (const layout::Range& range : state.written.holders[rank]) {
    bytes += (range.end - range.begin) * c10::elementSize(state.items[range.parameter].type);
  }
  return bytes;
}

}  // namespace muster::checkpoint
