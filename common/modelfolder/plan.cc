#include "common/modelfolder/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"

namespace muster::modelfolder {
namespace {

using safetensors::DType;
using safetensors::Entry;

uint64_t BytesOf(const Tensor& tensor, DType dtype) {
  return std::accumulate(
      tensor.shape.begin(), tensor.shape.end(), safetensors::ElementSize(dtype),
      [](uint64_t bytes, int64_t size) { return bytes * static_cast<uint64_t>(size); });
}

// The tensors of each file, by number.
std::vector<std::vector<size_t>> Divide(const std::vector<Tensor>& tensors,
                                        const std::vector<Place>& places, uint64_t most) {
  std::vector<std::vector<size_t>> shards(1);
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t more = BytesOf(tensors[i], places[i].dtype);
    if (!shards.back().empty() && bytes + more > most) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(i);
    bytes += more;
  }
  for (std::vector<size_t>& shard : shards) {
    std::stable_sort(shard.begin(), shard.end(), [&](size_t a, size_t b) {
      return safetensors::ElementSize(places[a].dtype) > safetensors::ElementSize(places[b].dtype);
    });
  }
  return shards;
}

std::string NameOf(size_t shard, size_t shards) {
  return shards == 1 ? "model.safetensors"
                     : absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, shards);
}

std::string IndexOf(const std::vector<Tensor>& tensors, const FolderPlan& plan) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    map[tensors[i].name] = plan.files[plan.places[i].file].name;
    bytes += BytesOf(tensors[i], plan.places[i].dtype);
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}},
                                        {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

uint16_t ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);  // stays quiet
  const uint32_t half = 0x7fff + ((bits >> 16) & 1);
  return static_cast<uint16_t>((bits + half) >> 16);
}

uint16_t ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(value)) return sign | 0x7e00;
  const double size = std::abs(static_cast<double>(value));
  if (size == 0) return sign;
  if (size >= 65520) return sign | 0x7c00;
  // The distance of neighbours is a power of two. The number is scaled by it and rounded to a whole
  // number (ties to even is the mode in which programs start).
  int exponent = 0;
  std::frexp(size, &exponent);
  const int lowest = std::max(exponent - 11, -24);
  const auto mantissa = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -lowest)));
  // A mantissa that is rounded up to the next power of two increases the exponent by the addition.
  return static_cast<uint16_t>(sign | (((lowest + 24) << 10) + mantissa));
}

}  // namespace

absl::StatusOr<FolderPlan> PlanFolder(const std::vector<Tensor>& tensors,
                                      const PlanOptions& options) {
  FolderPlan plan;
  std::set<std::string> names;
  for (const Tensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model has two tensors with the name '", tensor.name, "'"));
    }
    if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kI64) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", tensor.name, "': expected F32 or I64, found ", Name(tensor.dtype)));
    }
    plan.places.push_back({.dtype = tensor.dtype == DType::kF32 ? options.dtype : tensor.dtype});
  }
  const auto shards = Divide(tensors, plan.places, options.max_shard_bytes);
  for (size_t file = 0; file < shards.size(); ++file) {
    std::vector<Entry> entries;
    for (const size_t i : shards[file]) {
      entries.push_back({tensors[i].name, plan.places[i].dtype, tensors[i].shape});
    }
    ASSIGN_OR_RETURN(safetensors::FilePlan planned,
                     safetensors::Plan(std::move(entries), options.metadata));
    const uint64_t data = planned.prefix.size();
    uint64_t size = data;
    for (size_t i = 0; i < shards[file].size(); ++i) {
      Place& place = plan.places[shards[file][i]];
      place.file = file;
      place.offset = data + planned.entries[i].begin;
      size = data + planned.entries[i].end;
    }
    plan.files.push_back({NameOf(file, shards.size()), std::move(planned.prefix), size});
  }
  if (shards.size() > 1) plan.index = IndexOf(tensors, plan);
  return plan;
}

absl::Status ConvertFloats(const void* from, size_t count, DType dtype, void* to) {
  if (dtype == DType::kF32) {
    if (to != from) std::memcpy(to, from, count * sizeof(float));
    return absl::OkStatus();
  }
  const bool half = dtype == DType::kF16;
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, static_cast<const char*>(from) + i * sizeof(value), sizeof(value));
    const uint16_t converted = half ? ToFloat16(value) : ToBfloat16(value);
    const uint16_t infinity = half ? 0x7c00 : 0x7f80;
    if ((converted & 0x7fff) == infinity && !std::isinf(value)) {
      return absl::OutOfRangeError(absl::StrCat("the number ", value, " is too large for ",
                                                half ? "float16 (at most 65504)" : "bfloat16"));
    }
    std::memcpy(static_cast<char*>(to) + i * sizeof(converted), &converted, sizeof(converted));
  }
  return absl::OkStatus();
}

}  // namespace muster::modelfolder
