#include "worker/checkpoint/state.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/layout/groups.h"

namespace muster::checkpoint {
namespace {

absl::Status CheckPiece(const StateItem& item, const HeldPiece& piece) {
  const at::Tensor& tensor = piece.tensor;
  if (!tensor.defined()) {
    return absl::InvalidArgumentError(absl::StrCat("state ", Name(item), ": an undefined tensor"));
  }
  if (tensor.scalar_type() != item.type || !tensor.is_contiguous()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "state ", Name(item), ": expected a contiguous tensor of ", at::toString(item.type),
        ", found ", tensor.is_contiguous() ? "" : "a strided ",
        at::toString(tensor.scalar_type())));
  }
  const int64_t elements = Elements(item);
  if (piece.begin < 0 || piece.begin > elements || tensor.numel() > elements - piece.begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("state ", Name(item), ": expected a piece of its ", elements,
                     " elements, found [", piece.begin, ", ", piece.begin + tensor.numel(), ")"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Name(const StateItem& item) { return item.slot + "/" + item.parameter; }

int64_t Elements(const StateItem& item) {
  int64_t elements = 1;
  for (const int64_t size : item.shape) elements *= size;
  return elements;
}

absl::Status CheckState(const State& state) {
  std::set<std::string> names;
  for (const StateItem& item : state.items) {
    if (item.type != at::kFloat && item.type != at::kLong) {
      return absl::InvalidArgumentError(absl::StrCat(
          "state ", Name(item), ": expected Float or Long, found ", at::toString(item.type)));
    }
    if (!names.insert(Name(item)).second) {
      return absl::InvalidArgumentError(absl::StrCat("state ", Name(item), " appears twice"));
    }
  }
  std::vector<bool> seen(state.items.size());
  for (const HeldPiece& piece : state.held) {
    if (piece.item >= state.items.size()) {
      return absl::InvalidArgumentError(absl::StrCat("state: a piece of item ", piece.item,
                                                     ", expected one of ", state.items.size()));
    }
    const StateItem& item = state.items[piece.item];
    if (seen[piece.item]) {
      return absl::InvalidArgumentError(
          absl::StrCat("state ", Name(item), ": two pieces on one rank"));
    }
    seen[piece.item] = true;
    if (absl::Status status = CheckPiece(item, piece); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool IsOptimizers(const StateItem& item) {
  return item.slot != "param" && item.slot != "buffer" && item.slot != "scaler" &&
         item.slot != kAverageSlot;
}

bool IsWeight(const StateItem& item) { return item.slot == "param" || item.slot == "buffer"; }

State Only(const State& state, const std::function<bool(const StateItem&)>& chosen) {
  State own;
  std::vector<std::optional<size_t>> numbers;
  for (size_t i = 0; i < state.items.size(); ++i) {
    numbers.push_back(chosen(state.items[i]) ? std::optional(own.items.size()) : std::nullopt);
    if (!numbers.back().has_value()) continue;
    own.items.push_back(state.items[i]);
    own.written.elements.push_back(state.written.elements[i]);
  }
  for (const std::vector<sharding::Range>& ranges : state.written.holders) {
    std::vector<sharding::Range>& kept = own.written.holders.emplace_back();
    for (sharding::Range range : ranges) {
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

State AveragedWeights(const State& state) {
  const auto is_average = [](const StateItem& item) { return item.slot == kAverageSlot; };
  if (std::none_of(state.items.begin(), state.items.end(), is_average)) {
    return Only(state, IsWeight);
  }
  State weights =
      Only(state, [&](const StateItem& item) { return is_average(item) || item.slot == "buffer"; });
  for (StateItem& item : weights.items) {
    if (is_average(item)) item.slot = "param";
  }
  return weights;
}

State Replicated(const std::vector<StateTensor>& tensors, int world_size) {
  StateBuilder builder(world_size);
  for (const StateTensor& item : tensors) {
    builder.AddReplicated(item.slot, item.parameter, item.tensor);
  }
  return builder.Build();
}

void StateBuilder::AddReplicated(std::string slot, std::string parameter,
                                 const at::Tensor& tensor) {
  replicated_.push_back(items_.size());
  StateItem item{std::move(slot), std::move(parameter), {}, at::ScalarType::Undefined};
  if (tensor.defined()) {  // CheckState refuses undefined tensors
    item.shape = tensor.sizes().vec();
    item.type = tensor.scalar_type();
  }
  items_.push_back(std::move(item));
  Hold(0, tensor);
}

void StateBuilder::AddSharded(StateItem item, const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    if (part.begin != part.end) sharded_.push_back({items_.size(), part});
  }
  items_.push_back(std::move(item));
}

void StateBuilder::Hold(int64_t begin, const at::Tensor& tensor) {
  held_.push_back({items_.size() - 1, begin, tensor});
}

State StateBuilder::Build() const {
  std::vector<int64_t> elements;
  for (const size_t item : replicated_) elements.push_back(Elements(items_[item]));
  State state{items_, sharding::CutEvenly(elements, world_size_, layout::kAlignment), held_};
  sharding::Placement& written = state.written;
  for (auto& ranges : written.holders) {
    for (sharding::Range& range : ranges)
      range.parameter = static_cast<int64_t>(replicated_[range.parameter]);
  }
  for (const Written& one : sharded_) {
    written.holders.at(one.part.rank)
        .push_back({static_cast<int64_t>(one.item), one.part.begin, one.part.end});
  }
  written.elements.clear();
  for (const StateItem& item : items_) written.elements.push_back(Elements(item));
  return state;
}

}  // namespace muster::checkpoint
