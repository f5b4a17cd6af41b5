// Arrays in files, and how samples are read from them: the code that the data sets of rows and of
// several arrays share.
#ifndef MUSTER_WORKER_DATA_ARRAY_H_
#define MUSTER_WORKER_DATA_ARRAY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/files/mapped_file.h"
#include "worker/data/elements.h"
#include "worker/data/notes.h"

namespace muster::data {

// An array in a file; its data are in memory.
struct Array : Elements {
  std::string path;
  std::string name;                           // its name in errors: "inputs"
  int64_t offset = 0;                         // position of the data in the file, for errors
  std::shared_ptr<const void> owner;          // of the data
  const files::MappedFile* mapped = nullptr;  // the mapped file; null if the data are in memory

  // FAILED_PRECONDITION if the file has been shortened.
  absl::Status CheckNotShrunk() const;
};

// Returns "[2, 3]".
std::string ShapeString(const std::vector<int64_t>& shape);
// Returns "float32 [2, 3]".
std::string Describe(const Array& array);

// Returns an INVALID_ARGUMENT about the array.
absl::Status Wrong(const Array& array, const std::string& what);
// Returns an INVALID_ARGUMENT about element `within` of a row, with its byte offset.
absl::Status WrongElement(const Array& array, int64_t row, int64_t within, const std::string& what);

// Notes that the array's numbers are converted to the type `read`, and that Fortran order is slow.
// Bytes are not noted, because they are common in files of images.
void NoteCast(const Array& array, ElementType read, Notes* notes);

// Copies a row of an array of floats as float32. INVALID_ARGUMENT: a number that float32 cannot
// hold, or that is not finite.
absl::Status ReadNumbers(const Array& array, int64_t row, float* out);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_ARRAY_H_
