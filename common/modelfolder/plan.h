// The weights in a model's folder for Hugging Face's from_pretrained: one file, or several (shards)
// with an index. All positions are known before any tensor, so that many writers can write their
// parts at the same time. Pure.
#ifndef MUSTER_COMMON_MODELFOLDER_PLAN_H_
#define MUSTER_COMMON_MODELFOLDER_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/safetensors/safetensors.h"

namespace muster::modelfolder {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  safetensors::DType dtype = safetensors::DType::kF32;  // or kI64
};

// The size of a shard in transformers' save_pretrained.
inline constexpr uint64_t kShardBytes = 5'000'000'000;

struct PlanOptions {
  // The type to which float32 tensors are converted: kF32, kBF16 or kF16. Others keep their type.
  safetensors::DType dtype = safetensors::DType::kF32;
  // The most bytes of tensors in a file, except in a file with only one tensor. At least 1.
  uint64_t max_shard_bytes = kShardBytes;
  safetensors::Metadata metadata;  // of each file
};

struct PlannedFile {
  std::string name;    // "model.safetensors", "model-00001-of-00003.safetensors"
  std::string prefix;  // its first bytes: everything before the tensors
  uint64_t size = 0;
};

// The place of a tensor's elements.
struct Place {
  size_t file = 0;
  uint64_t offset = 0;  // in the file
  safetensors::DType dtype = safetensors::DType::kF32;
};

struct FolderPlan {
  std::vector<PlannedFile> files;
  std::vector<Place> places;  // of the tensors, in their order
  // The contents of model.safetensors.index.json; empty if there is one file.
  std::string index;
};

inline constexpr char kIndexName[] = "model.safetensors.index.json";

// Tensors keep their order from file to file. In a file, wide numbers come first, because readers
// may want each at a multiple of its size. INVALID_ARGUMENT: a name appears twice or is not UTF-8,
// or a type is not allowed.
absl::StatusOr<FolderPlan> PlanFolder(const std::vector<Tensor>& tensors,
                                      const PlanOptions& options);

// Converts `count` float32 numbers at `from` (may be unaligned) to kF32, kBF16 or kF16 at `to`.
// `to` may be `from`. Rounds to the nearest and halves to even, as torch.Tensor.to does. Infinities
// and NaN are kept. OUT_OF_RANGE: a finite number is too large for the type; the message has the
// number.
absl::Status ConvertFloats(const void* from, size_t count, safetensors::DType dtype, void* to);

}  // namespace muster::modelfolder

#endif  // MUSTER_COMMON_MODELFOLDER_PLAN_H_
