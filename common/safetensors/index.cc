#include "common/safetensors/index.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/filekind/file_kind.h"
#include "common/problems/problems.h"
#include "common/safetensors/strict_json.h"
#include "common/status/status.h"

namespace muster::safetensors {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxIndex = 100'000'000;  // as for a file's header

absl::Status Broken(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": not a safetensors index: ", what));
}

bool IsInside(const std::string& name) {
  if (name.empty() || name[0] == '/' || name.find('\0') != std::string::npos) return false;
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  return std::find(parts.begin(), parts.end(), "..") == parts.end();
}

}  // namespace

absl::StatusOr<Index> ParseIndex(const uint8_t* data, size_t size, const std::string& path) {
  if (size > kMaxIndex) {
    return Broken(path, absl::StrCat("expected at most ", kMaxIndex, " bytes, found ", size));
  }
  if (const auto other = filekind::Mismatch(data, size, filekind::Wanted::kJson)) {
    return Broken(path, *other);
  }
  const absl::StatusOr<Json> json = ParseStrictJson(data, size);
  if (!json.ok()) return Broken(path, Message(json.status()));
  if (!json->is_object() || !json->contains("weight_map")) {
    return Broken(path, absl::StrCat("expected an object with weight_map, found ",
                                     json->is_object() ? "one without" : json->type_name()));
  }
  const Json& map = (*json)["weight_map"];
  if (!map.is_object() || map.empty()) {
    return Broken(path, absl::StrCat("weight_map: expected an object from tensors to files, found ",
                                     map.is_object() ? "an empty one" : map.type_name()));
  }
  Index index;
  std::set<std::string> outside;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string()) {
      return Broken(path, absl::StrCat("weight_map '", tensor, "': expected a file's name, found ",
                                       file.type_name()));
    }
    index[tensor] = file.get<std::string>();
    if (!IsInside(index[tensor])) outside.insert(file.dump());
  }
  Problems problems;
  for (const std::string& name : outside) {
    problems.Add(
        absl::StrCat("weight_map: expected names of files in the index's folder, found ", name));
  }
  RETURN_IF_ERROR(problems.ToStatus(absl::StatusCode::kInvalidArgument, path));
  return index;
}

}  // namespace muster::safetensors
