// The elements of arrays in files: their types, their places, and their values as float32 or as
// whole numbers.
#ifndef MUSTER_WORKER_DATA_ELEMENTS_H_
#define MUSTER_WORKER_DATA_ELEMENTS_H_

#include <cstdint>
#include <vector>

namespace muster::data {

enum class ElementType {
  kBool,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

int64_t ElementSize(ElementType type);
// The type's name as in NumPy: "float32".
const char* Name(ElementType type);
bool IsFloat(ElementType type);

// kC: the last dimension changes fastest; kFortran: the first one.
enum class ElementOrder { kC, kFortran };

// An array in memory, little-endian, at any alignment.
struct Elements {
  ElementType type = ElementType::kFloat32;
  ElementOrder order = ElementOrder::kC;
  std::vector<int64_t> shape;  // one dimension at least
  const uint8_t* data = nullptr;

  // The number of elements in shape[1...].
  int64_t row_elements() const;
};

// The offset of element `within` of a row, in C order: bytes from the array's beginning.
int64_t OffsetOf(const Elements& array, int64_t row, int64_t within);

// Copies a row of an array of floats in C order, each number rounded to the nearest float32.
// Numbers beyond the range of float32 become infinities.
void CopyRow(const Elements& array, int64_t row, float* out);

// The number at this place, of any type: exact.
double NumberAt(const Elements& array, int64_t offset);
// The number at this place of an array of whole numbers.
int64_t IntegerAt(const Elements& array, int64_t offset);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_ELEMENTS_H_
