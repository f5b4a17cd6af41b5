#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/safetensors/safetensors.h"
#include "common/safetensors/strict_json.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"

namespace muster::safetensors {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // as in the reference readers

absl::Status Broken(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": not a whole safetensors file: ", what));
}

absl::StatusOr<uint64_t> HeaderLength(const uint8_t* data, size_t size, const std::string& path) {
  if (size < 8) {
    return Broken(path, absl::StrCat("expected at least 8 bytes, found ", size));
  }
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= static_cast<uint64_t>(data[i]) << (8 * i);
  if (length > kMaxHeader) {
    return Broken(path, absl::StrCat("expected a header of at most ", kMaxHeader,
                                     " bytes, found a length of ", length));
  }
  if (length > size - 8) {
    return Broken(path, absl::StrCat("expected a header of ", length, " bytes, found ", size - 8,
                                     " bytes after its length"));
  }
  return length;
}

// The header's JSON object.
absl::StatusOr<Json> ParseJson(const uint8_t* data, uint64_t length, const std::string& path) {
  if (length == 0 || data[0] != '{') {
    return Broken(path, "expected the header to start with '{'");
  }
  absl::StatusOr<Json> header = ParseStrictJson(data, length);
  if (!header.ok()) return Broken(path, absl::StrCat("the header: ", Message(header.status())));
  return header;
}

absl::StatusOr<Metadata> ParseMetadata(const Json& json, const std::string& path) {
  Metadata metadata;
  if (!json.is_object()) return Broken(path, "__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return Broken(path, absl::StrCat("__metadata__ '", key, "' is not a string"));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

bool IsListOfSizes(const Json& json) {
  return json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& item) {
           return item.is_number_unsigned() && item.get<uint64_t>() <= INT64_MAX;
         });
}

absl::StatusOr<Entry> ParseEntry(const std::string& name, const Json& json, uint64_t data_size,
                                 const std::string& path) {
  const std::string where = absl::StrCat("entry '", name, "': ");
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return Broken(path, where + "expected dtype, shape and data_offsets");
  }
  Entry entry;
  entry.name = name;
  if (!json["dtype"].is_string()) return Broken(path, where + "dtype is not a string");
  const std::optional<DType> dtype = DTypeOf(json["dtype"].get<std::string>());
  if (!dtype.has_value()) {
    return Broken(path,
                  absl::StrCat(where, "unknown dtype '", json["dtype"].get<std::string>(), "'"));
  }
  entry.dtype = *dtype;
  if (!IsListOfSizes(json["shape"])) return Broken(path, where + "shape is not a list of sizes");
  entry.shape = json["shape"].get<std::vector<int64_t>>();
  if (!IsListOfSizes(json["data_offsets"]) || json["data_offsets"].size() != 2) {
    return Broken(path, where + "data_offsets are not two offsets");
  }
  entry.begin = json["data_offsets"][0].get<uint64_t>();
  entry.end = json["data_offsets"][1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > data_size) {
    return Broken(path, absl::StrCat(where, "expected data within ", data_size, " bytes, found [",
                                     entry.begin, ", ", entry.end, ")"));
  }
  uint64_t expected = ElementSize(entry.dtype);
  for (int64_t size : entry.shape) {
    if (__builtin_mul_overflow(expected, static_cast<uint64_t>(size), &expected)) {
      return Broken(path,
                    absl::StrCat(where, "the shape ", ShapeString(entry.shape), " overflows"));
    }
  }
  if (entry.bytes() != expected) {
    return Broken(path, absl::StrCat(where, Name(entry.dtype), " ", ShapeString(entry.shape),
                                     " takes ", expected, " bytes, found ", entry.bytes()));
  }
  return entry;
}

// Sorts the entries by place, and checks that they fill the data section without holes or overlap.
absl::Status CheckContiguous(std::vector<Entry>* entries, uint64_t data_size,
                             const std::string& path) {
  std::sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t offset = 0;
  for (const Entry& entry : *entries) {
    if (entry.begin != offset) {
      return Broken(path, absl::StrCat("entry '", entry.name, "': expected its data at ", offset,
                                       ", found ", entry.begin));
    }
    offset = entry.end;
  }
  if (offset != data_size) {
    return Broken(path, absl::StrCat("expected ", offset, " bytes of data, found ", data_size));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Header> ParseHeader(const uint8_t* data, size_t size, const std::string& path) {
  ASSIGN_OR_RETURN(const uint64_t length, HeaderLength(data, size, path));
  ASSIGN_OR_RETURN(const Json json, ParseJson(data + 8, length, path));
  Header header;
  header.data_offset = 8 + length;
  header.file_size = size;
  const uint64_t data_size = size - header.data_offset;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      ASSIGN_OR_RETURN(header.metadata, ParseMetadata(value, path));
    } else {
      ASSIGN_OR_RETURN(Entry entry, ParseEntry(name, value, data_size, path));
      header.entries.push_back(std::move(entry));
    }
  }
  RETURN_IF_ERROR(CheckContiguous(&header.entries, data_size, path));
  return header;
}

}  // namespace muster::safetensors
