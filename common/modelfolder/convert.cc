#include "common/modelfolder/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace muster::modelfolder {
namespace {

using safetensors::DType;

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
  // The distance of neighbours is a power of two; scaled by it, the number is rounded to a whole
  // one (ties to even is the mode in which programs start).
  int exponent = 0;
  std::frexp(size, &exponent);
  const int lowest = std::max(exponent - 11, -24);
  const auto mantissa = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -lowest)));
  // A mantissa that was rounded up to the next power of two moves into the exponent by itself.
  return static_cast<uint16_t>(sign | (((lowest + 24) << 10) + mantissa));
}

}  // namespace

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
