#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/safetensors/safetensors.h"
#include "nlohmann/json.hpp"

namespace muster::safetensors {

absl::StatusOr<FilePlan> Plan(std::vector<Entry> entries, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names = {"__metadata__"};
  uint64_t offset = 0;
  for (Entry& entry : entries) {
    if (!names.insert(entry.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("safetensors entry '", entry.name, "': the name is taken"));
    }
    uint64_t bytes = ElementSize(entry.dtype);
    for (int64_t size : entry.shape) {
      if (size < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "safetensors entry '", entry.name, "': negative size in ", ShapeString(entry.shape)));
      }
      bytes *= static_cast<uint64_t>(size);
    }
    entry.begin = offset;
    offset += bytes;
    entry.end = offset;
    header.push_back({entry.name,
                      {{"dtype", Name(entry.dtype)},
                       {"shape", entry.shape},
                       {"data_offsets", {entry.begin, entry.end}}}});
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("safetensors: a name or metadata value is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  FilePlan plan;
  for (int i = 0; i < 8; ++i) {
    plan.prefix += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  }
  plan.prefix += text;
  plan.entries = std::move(entries);
  return plan;
}

}  // namespace muster::safetensors
