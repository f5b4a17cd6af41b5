// safetensors files: u64 header length (little endian), a JSON header padded to 8, then the data.
// The reader is strict: it refuses a file that breaks the rules of the format, with expected and
// found.
#ifndef MUSTER_COMMON_SAFETENSORS_SAFETENSORS_H_
#define MUSTER_COMMON_SAFETENSORS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/filekind/file_kind.h"
#include "common/files/mapped_file.h"

namespace muster::safetensors {

enum class DType {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

// "F32"
std::string Name(DType dtype);
// The type with this name; nothing if there is none.
std::optional<DType> DTypeOf(const std::string& name);
// The bytes of one element.
uint64_t ElementSize(DType dtype);

struct Entry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // offsets into the data section; filled by Plan
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

// "[2, 3]", for errors.
std::string ShapeString(const std::vector<int64_t>& shape);

using Metadata = std::map<std::string, std::string>;

struct Header {
  std::vector<Entry> entries;  // in the order of the data
  Metadata metadata;
  uint64_t data_offset = 0;  // the beginning of the data section in the file
  uint64_t file_size = 0;
};

// Reads the header of a whole file in memory. `path` is for errors only. DATA_LOSS: a file shorter
// than its header says, a header above 100 MB or not JSON, duplicate names, unknown dtypes.
// DATA_LOSS also for offsets that leave the file, overlap, leave holes or do not fit dtype and
// shape.
absl::StatusOr<Header> ParseHeader(const uint8_t* data, size_t size, const std::string& path);

// A mapped file with its header. Threading: const.
class File {
 public:
  // `wanted`: the use of the file. The error for a file of another kind names its kind
  // (common/filekind). Its code is DATA_LOSS, too.
  static absl::StatusOr<File> Open(const std::string& path,
                                   filekind::Wanted wanted = filekind::Wanted::kWeights);

  const Header& header() const { return header_; }
  const std::string& path() const { return file_.path(); }
  const files::MappedFile& mapped() const { return file_; }
  // The entry; null if there is none.
  const Entry* Find(const std::string& name) const;
  // The bytes of an entry of this header; may be unaligned.
  const uint8_t* data(const Entry& entry) const {
    return file_.data() + header_.data_offset + entry.begin;
  }

 private:
  File(files::MappedFile file, Header header);

  files::MappedFile file_;
  Header header_;
  std::map<std::string, size_t> by_name_;
};

// A file to be written: first `prefix` (length and header), then the data of the entries in order.
struct FilePlan {
  std::string prefix;
  std::vector<Entry> entries;  // the entries with their offsets
};

// INVALID_ARGUMENT for a duplicate name, a negative size or the reserved name "__metadata__".
absl::StatusOr<FilePlan> Plan(std::vector<Entry> entries, const Metadata& metadata);

}  // namespace muster::safetensors

#endif  // MUSTER_COMMON_SAFETENSORS_SAFETENSORS_H_
