#include "common/safetensors/tensor_set.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/filekind/file_kind.h"
#include "common/files/files.h"
#include "common/problems/problems.h"
#include "common/safetensors/strict_json.h"
#include "common/status/status.h"

namespace muster::safetensors {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxIndex = 100'000'000;  // the limit of a file's header

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

namespace {

using Files = std::map<std::string, File>;

// Opens the files that the index names. Notes failures, and returns the code of the first failure,
// else INVALID_ARGUMENT.
absl::StatusCode OpenFiles(const Index& index, const std::string& folder, Files* files,
                           Problems* problems) {
  std::set<std::string> names;
  for (const auto& [tensor, name] : index) names.insert(name);
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  for (const std::string& name : names) {
    absl::StatusOr<File> file = File::Open(files::JoinPath(folder, name));
    if (file.ok()) {
      files->emplace(name, *std::move(file));
      continue;
    }
    if (problems->count() == 0) code = file.status().code();
    problems->Add(Message(file.status()));
  }
  return code;
}

// Checks that each tensor lies where the index says, and nowhere else.
void CheckPlaces(const Index& index, const Files& files, Problems* problems) {
  std::map<std::string, std::vector<std::string>> places;
  for (const auto& [name, file] : files) {
    for (const Entry& entry : file.header().entries) places[entry.name].push_back(name);
  }
  for (const auto& [tensor, expected] : index) {
    const std::vector<std::string>& found = places[tensor];
    if (files.count(expected) == 0 || (found.size() == 1 && found[0] == expected)) continue;
    std::string where = found.empty() ? "nowhere" : absl::StrCat("in ", found[0]);
    if (found.size() > 1) absl::StrAppend(&where, " and ", found[1]);
    if (found.size() > 2) absl::StrAppend(&where, " and ", found.size() - 2, " more");
    problems->Add(absl::StrCat("'", tensor, "': expected in ", expected,
                               found.size() > 1 ? " alone" : "", ", found ", where));
  }
  for (const auto& [tensor, found] : places) {
    if (index.count(tensor) > 0) continue;
    problems->Add(
        absl::StrCat("'", tensor, "' in ", found[0], ": expected in weight_map, found nothing"));
  }
}

absl::StatusOr<Files> OpenSharded(const std::string& path) {
  ASSIGN_OR_RETURN(const files::MappedFile text, files::MappedFile::Open(path));
  ASSIGN_OR_RETURN(const Index index, ParseIndex(text.data(), text.size(), path));
  Files files;
  Problems problems;
  const absl::StatusCode code = OpenFiles(index, files::ParentDirectory(path), &files, &problems);
  CheckPlaces(index, files, &problems);
  RETURN_IF_ERROR(problems.ToStatus(code, path));
  return files;
}

}  // namespace

absl::StatusOr<TensorSet> TensorSet::Open(const std::string& path) {
  Files files;
  if (absl::EndsWith(path, ".json")) {
    ASSIGN_OR_RETURN(files, OpenSharded(path));
  } else {
    ASSIGN_OR_RETURN(File file, File::Open(path));
    files.emplace(path, std::move(file));
  }
  return TensorSet(std::move(files));
}

TensorSet::TensorSet(Files files) : files_(std::move(files)) {
  for (const auto& [name, file] : files_) {
    for (const Entry& entry : file.header().entries) tensors_.push_back({&file, &entry});
  }
}

std::string TensorSet::Describe(const StoredTensor& tensor) const {
  if (files_.size() > 1) {
    for (const auto& [name, file] : files_) {
      if (&file == tensor.file) return absl::StrCat("'", tensor.name(), "' in ", name);
    }
  }
  return absl::StrCat("'", tensor.name(), "'");
}

std::string PathOfModel(const std::string& folder) {
  const std::string file = files::JoinPath(folder, "model.safetensors");
  const std::string index = file + ".index.json";
  const auto exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  return !exists(file) && exists(index) ? index : file;
}

}  // namespace muster::safetensors
