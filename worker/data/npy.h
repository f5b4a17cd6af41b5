// The header of NumPy's .npy (format versions 1.0, 2.0 and 3.0), which describes the data of an
// array file.
#ifndef MUSTER_WORKER_DATA_NPY_H_
#define MUSTER_WORKER_DATA_NPY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::data {

struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<int64_t> shape;
  size_t data_offset = 0;
};

// Reads the header at the beginning of a file in memory. `path` is for errors only.
// INVALID_ARGUMENT: not a .npy file, an unknown version, a dtype of several fields. DATA_LOSS:
// truncated, or not a header that NumPy writes.
absl::StatusOr<NpyHeader> ParseNpyHeader(const uint8_t* data, size_t size, const std::string& path);

// Returns the header of an array in C order, as numpy.save writes it, in format version 1.0: all
// bytes of the file before the data. `descr`: "<f4".
std::string MakeNpyHeader(const std::string& descr, const std::vector<int64_t>& shape);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_NPY_H_
