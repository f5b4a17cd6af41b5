#include "worker/checkpoint/imported_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/problems/problems.h"
#include "common/safetensors/safetensors.h"
#include "worker/device/memory.h"

namespace muster::checkpoint {
namespace {

using optimizerfile::OptimizerSource;
using optimizerfile::StoredValues;
using safetensors::DType;

std::optional<at::ScalarType> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF64:
      return at::kDouble;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kI64:
      return at::kLong;
    case DType::kI32:
      return at::kInt;
    default:
      return std::nullopt;
  }
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

bool IsOneNumber(const std::vector<int64_t>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size == 1; });
}

// Returns the problem of a value; empty: none.
std::string Problem(const OptimizerSource::Value& value, const ImportedSlot& slot,
                    const std::vector<int64_t>& shape) {
  const auto* const stored = std::get_if<StoredValues>(&value);
  if (stored == nullptr) {
    if (!slot.scalar) return "expected a tensor, found a number";
    const double number = std::get<double>(value);
    const bool fits = std::abs(number) <= std::numeric_limits<float>::max();
    return fits ? "" : absl::StrCat("expected a finite float32, found ", number);
  }
  const std::string found =
      absl::StrCat(safetensors::Name(stored->dtype), " ", safetensors::ShapeString(stored->shape));
  if (slot.scalar) {
    const bool fits = IsOneNumber(stored->shape) && TypeOf(stored->dtype).has_value();
    return fits ? "" : absl::StrCat("expected one number, found ", found);
  }
  if (stored->shape == shape && IsFloat(stored->dtype)) return "";
  return absl::StrCat("expected floating-point numbers ", safetensors::ShapeString(shape),
                      ", found ", found);
}

// Returns elements [begin, begin + elements) of the stored values, as float32 on the CPU.
at::Tensor Read(const StoredValues& stored, int64_t begin, int64_t elements) {
  const at::Tensor raw = at::empty({elements}, at::TensorOptions(*TypeOf(stored.dtype)));
  std::memcpy(raw.mutable_data_ptr(), stored.data + begin * raw.element_size(), raw.nbytes());
  return raw.to(at::kFloat);
}

void Fill(const OptimizerSource::Value& value, bool scalar, const HeldPiece& piece) {
  const auto* const stored = std::get_if<StoredValues>(&value);
  if (stored == nullptr || scalar) {
    const at::Tensor one = stored == nullptr ? at::full({1}, std::get<double>(value), at::kFloat)
                                             : Read(*stored, 0, 1);
    device::CopyFromHost(piece.tensor, 0, one.const_data_ptr(), sizeof(float));
    return;
  }
  constexpr int64_t kMost = activity::kBlockBytes / sizeof(float);
  const int64_t elements = piece.tensor.numel();
  for (int64_t done = 0; done < elements; done += kMost) {
    const int64_t some = std::min(kMost, elements - done);
    const at::Tensor values = Read(*stored, piece.begin + done, some);
    device::CopyFromHost(piece.tensor, done * static_cast<int64_t>(sizeof(float)),
                         values.const_data_ptr(), some * static_cast<int64_t>(sizeof(float)));
    activity::Moved();
  }
}

}  // namespace

absl::Status CheckImport(const OptimizerSource& source,
                         const std::vector<manifest::ParameterRecord>& parameters,
                         const ImportedSlots& slots) {
  std::map<std::string, const manifest::ParameterRecord*> known;
  for (const auto& parameter : parameters) known[parameter.name] = &parameter;
  Problems problems;
  for (const auto& [name, found] : source.state()) {
    const auto parameter = known.find(name);
    if (parameter == known.end()) {
      problems.Add(absl::StrCat("the model has no parameter '", name, "'"));
      continue;
    }
    auto left = found;
    for (const ImportedSlot& slot : slots.at(name)) {
      const auto value = left.find(slot.name);
      if (value == left.end()) {
        problems.Add(absl::StrCat("'", name, "' has no ", slot.name));
        continue;
      }
      const std::string problem = Problem(value->second, slot, parameter->second->shape);
      if (!problem.empty()) problems.Add(absl::StrCat(slot.name, " of '", name, "': ", problem));
      left.erase(value);
    }
    for (const auto& [slot, value] : left) {
      problems.Add(
          absl::StrCat(slot, " of '", name, "': its optimizer in the job has no such state"));
    }
  }
  return problems.ToStatus(absl::StatusCode::kInvalidArgument,
                           "the file does not fit the job's optimizer");
}

std::vector<jobspec::Line> LinesOf(const OptimizerSource& source) {
  std::vector<jobspec::Line> lines;
  for (const auto& [name, slots] : source.state()) {
    std::string text;
    for (const auto& [slot, value] : slots) absl::StrAppend(&text, text.empty() ? "" : ", ", slot);
    lines.push_back({name, text});
  }
  return lines;
}

void FillImported(const OptimizerSource& source, const ImportedSlots& slots, const State& state) {
  for (const HeldPiece& piece : state.held) {
    const StateItem& item = state.items[piece.item];
    const auto own = slots.find(item.parameter);
    const auto parameter = source.state().find(item.parameter);
    if (own == slots.end() || parameter == source.state().end()) continue;
    for (const ImportedSlot& slot : own->second) {
      if (slot.name == item.slot) Fill(parameter->second.at(item.slot), slot.scalar, piece);
    }
  }
}

}  // namespace muster::checkpoint
