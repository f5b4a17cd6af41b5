#include "worker/data/elements.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "c10/util/Half.h"

namespace muster::data {
namespace {

// The entries are in the order of the enumeration.
constexpr struct {
  const char* name;
  int64_t size;
} kTypes[] = {
    {"bool", 1},  {"uint8", 1}, {"int8", 1},    {"uint16", 2},   {"int16", 2},   {"uint32", 4},
    {"int32", 4}, {"int64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
};
static_assert(std::size(kTypes) == static_cast<size_t>(ElementType::kFloat64) + 1);

template <typename T>
T Load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float FromFloat16(const uint8_t* at) {
  return c10::detail::fp16_ieee_to_fp32_value(Load<uint16_t>(at));
}

float FromBFloat16(const uint8_t* at) {
  return std::bit_cast<float>(uint32_t{Load<uint16_t>(at)} << 16);
}

float FromFloat64(const uint8_t* at) {
  const auto value = Load<double>(at);
  if (std::abs(value) > std::numeric_limits<float>::max()) {
    return value > 0 ? std::numeric_limits<float>::infinity()
                     : -std::numeric_limits<float>::infinity();
  }
  return static_cast<float>(value);
}

template <typename Convert>
void CopyNumbers(const Elements& array, int64_t row, float* out, Convert convert) {
  const int64_t count = array.row_elements();
  const int64_t size = ElementSize(array.type);
  if (array.order == ElementOrder::kC) {
    const uint8_t* const begin = array.data + row * count * size;
    for (int64_t i = 0; i < count; ++i) out[i] = convert(begin + i * size);
    return;
  }
  // The indices of the row's dimensions, and the steps between neighbours in each.
  const size_t dimensions = array.shape.size() - 1;
  std::vector<int64_t> index(dimensions), step(dimensions);
  int64_t next_step = array.shape[0];
  for (size_t d = 0; d < dimensions; ++d) {
    step[d] = next_step;
    next_step *= array.shape[d + 1];
  }
  int64_t at = row;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = convert(array.data + at * size);
    for (size_t d = dimensions; d-- > 0;) {
      at += step[d];
      if (++index[d] < array.shape[d + 1]) break;
      at -= index[d] * step[d];
      index[d] = 0;
    }
  }
}

}  // namespace

int64_t ElementSize(ElementType type) { return kTypes[static_cast<size_t>(type)].size; }

const char* Name(ElementType type) { return kTypes[static_cast<size_t>(type)].name; }

bool IsFloat(ElementType type) {
  return type == ElementType::kFloat16 || type == ElementType::kBFloat16 ||
         type == ElementType::kFloat32 || type == ElementType::kFloat64;
}

int64_t Elements::row_elements() const {
  int64_t count = 1;
  for (size_t d = 1; d < shape.size(); ++d) count *= shape[d];
  return count;
}

int64_t OffsetOf(const Elements& array, int64_t row, int64_t within) {
  const int64_t size = ElementSize(array.type);
  if (array.order == ElementOrder::kC) return (row * array.row_elements() + within) * size;
  int64_t step = array.shape[0];
  for (size_t d = 1; d < array.shape.size(); ++d) step *= array.shape[d];
  int64_t at = row;
  for (size_t d = array.shape.size(); d-- > 1;) {
    step /= array.shape[d];
    at += within % array.shape[d] * step;
    within /= array.shape[d];
  }
  return at * size;
}

void CopyRow(const Elements& array, int64_t row, float* out) {
  if (array.type == ElementType::kFloat16) return CopyNumbers(array, row, out, FromFloat16);
  if (array.type == ElementType::kBFloat16) return CopyNumbers(array, row, out, FromBFloat16);
  if (array.type == ElementType::kFloat64) return CopyNumbers(array, row, out, FromFloat64);
  if (array.order == ElementOrder::kFortran) return CopyNumbers(array, row, out, Load<float>);
  const size_t bytes = static_cast<size_t>(array.row_elements()) * sizeof(float);
  std::memcpy(out, array.data + static_cast<size_t>(row) * bytes, bytes);
}

double NumberAt(const Elements& array, int64_t offset) {
  const uint8_t* const at = array.data + offset;
  if (array.type == ElementType::kFloat16) return FromFloat16(at);
  if (array.type == ElementType::kBFloat16) return FromBFloat16(at);
  if (array.type == ElementType::kFloat32) return Load<float>(at);
  if (array.type == ElementType::kFloat64) return Load<double>(at);
  return static_cast<double>(IntegerAt(array, offset));
}

int64_t IntegerAt(const Elements& array, int64_t offset) {
  const uint8_t* const at = array.data + offset;
  switch (array.type) {
    case ElementType::kBool:
    case ElementType::kUint8:
      return *at;
    case ElementType::kInt8:
      return Load<int8_t>(at);
    case ElementType::kUint16:
      return Load<uint16_t>(at);
    case ElementType::kInt16:
      return Load<int16_t>(at);
    case ElementType::kUint32:
      return Load<uint32_t>(at);
    case ElementType::kInt32:
      return Load<int32_t>(at);
    case ElementType::kInt64:
      return Load<int64_t>(at);
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
    case ElementType::kFloat32:
    case ElementType::kFloat64:
      break;
  }
  return -1;
}

}  // namespace muster::data
