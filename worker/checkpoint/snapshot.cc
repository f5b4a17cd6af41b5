#include "worker/checkpoint/snapshot.h"

#include <optional>
#include <utility>
#include <vector>

#include "c10/core/ScalarType.h"
#include "worker/device/event.h"
#include "worker/device/memory.h"

namespace muster::checkpoint {
namespace {

bool IsOptimizers(const StateItem& item) {
  return item.slot != "param" && item.slot != "buffer" && item.slot != "scaler";
}

}  // namespace

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

State OptimizersItems(const State& state) {
  State own;
  std::vector<std::optional<size_t>> numbers;
  for (size_t i = 0; i < state.items.size(); ++i) {
    numbers.push_back(IsOptimizers(state.items[i]) ? std::optional(own.items.size())
                                                   : std::nullopt);
    if (!numbers.back().has_value()) continue;
    own.items.push_back(state.items[i]);
    own.written.elements.push_back(state.written.elements[i]);
  }
  for (const std::vector<layout::Range>& ranges : state.written.holders) {
    std::vector<layout::Range>& kept = own.written.holders.emplace_back();
    for (layout::Range range : ranges) {
      const std::optional<size_t> number = numbers[range.parameter];
      if (!number.has_value()) continue;
      range.parameter = static_cast<int64_t>(*number);
      kept.push_back(range);
    }
  }
  for (const HeldPiece& piece : state.held) {
    if (const auto number = numbers[piece.item]; number.has_value()) {
      own.held.push_back({*number, piece.begin, piece.tensor});
    }
  }
  return own;
}

}  // namespace muster::checkpoint
