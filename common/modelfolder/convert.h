// Numbers of a narrower type.
#ifndef MUSTER_COMMON_MODELFOLDER_CONVERT_H_
#define MUSTER_COMMON_MODELFOLDER_CONVERT_H_

#include <cstddef>

#include "absl/status/status.h"
#include "common/safetensors/safetensors.h"

namespace muster::modelfolder {

// Converts `count` float32 numbers at `from` (may be unaligned) to kF32, kBF16 or kF16 at `to`,
// rounded to the nearest and halves to even, as torch.Tensor.to rounds. `to` may be `from`: then
// the numbers are converted in place. OUT_OF_RANGE: a finite number is too large for the type; the
// message has the number. Infinities and NaN stay what they are.
absl::Status ConvertFloats(const void* from, size_t count, safetensors::DType dtype, void* to);

}  // namespace muster::modelfolder

#endif  // MUSTER_COMMON_MODELFOLDER_CONVERT_H_
