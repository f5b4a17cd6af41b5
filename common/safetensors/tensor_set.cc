#include "common/safetensors/tensor_set.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/problems/problems.h"
#include "common/safetensors/index.h"
#include "common/status/status.h"

namespace muster::safetensors {
namespace {

using Files = std::map<std::string, File>;

// Opens what the index names; notes what cannot be opened. Returns the first failure's code, else
// INVALID_ARGUMENT.
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

// Whether each tensor lies where the index says, and nowhere else.
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

}  // namespace muster::safetensors
