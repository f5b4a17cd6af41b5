#include "worker/launcher/libtorch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/secret/worker_variable.h"

namespace muster::launcher {
namespace {

bool Has(const std::string& folder, const std::string& file) {
  std::error_code error;
  return std::filesystem::exists(files::JoinPath(folder, file), error);
}

// Returns the version, "2.13.0+cpu"; empty if the folder does not contain it. PyTorch's package has
// version.py, the archive for C++ has build-version.
std::string VersionIn(const std::string& folder) {
  if (const auto text = files::ReadFile(files::JoinPath(folder, "version.py")); text.ok()) {
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
      if (!absl::StartsWith(line, "__version__ = ")) continue;
      const std::vector<std::string> parts = absl::StrSplit(line, absl::ByAnyChar("'\""));
      if (parts.size() > 1) return parts[1];
    }
  }
  const auto text = files::ReadFile(files::JoinPath(folder, "build-version"));
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

std::string WhatToDo(const Search& search) {
  return absl::StrCat("install it with `pip install 'torch==", search.version,
                      ".*'`, or set LIBTORCH to a folder that has lib/libtorch_cpu.so of this "
                      "version (docs/how-to/install.md)");
}

constexpr char kAsk[] =
    "exec 2>/dev/null; exec python3 -c \"import importlib.util as u; "
    "print(u.find_spec('torch').submodule_search_locations[0])\"";

std::string FirstLineOf(const std::string& command) {
  char line[4096] = {};
  FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) return "";
  const bool any = fgets(line, sizeof(line), output) != nullptr;
  pclose(output);
  return any ? std::string(line, strcspn(line, "\n")) : "";
}

constexpr char kPath[] = "LD_LIBRARY_PATH";
constexpr char kBefore[] = "MUSTER_LD_LIBRARY_PATH_BEFORE";

}  // namespace

absl::StatusOr<LibTorch> FindLibTorch(const Search& search) {
  const std::string installed = std::filesystem::path(search.programs).parent_path().string();
  std::vector<std::string> asked, other;
  // True if the search is over, because `folder` has a fitting LibTorch.
  const auto fits = [&](const std::string& folder, const std::string& name) {
    if (folder.empty() || !Has(folder, "lib/libtorch_cpu.so")) {
      asked.push_back(name);
      return false;
    }
    const std::string version = VersionIn(folder);
    if (version.empty() || absl::StartsWith(version, search.version + ".")) return true;
    other.push_back(absl::StrCat(version, " in ", folder));
    return false;
  };
  const auto found = [](const std::string& folder) {
    return LibTorch{.folder = folder, .cuda = Has(folder, "lib/libtorch_cuda.so")};
  };
  if (!search.libtorch.empty()) {
    if (fits(search.libtorch, absl::StrCat("$LIBTORCH, ", search.libtorch))) {
      return found(search.libtorch);
    }
  } else {
    const std::string own = files::JoinPath(installed, "lib/muster/torch");
    const std::string beside =
        files::JoinPath(std::filesystem::path(installed).parent_path().string(), "torch");
    for (const std::string& folder : {own, beside}) {
      if (fits(folder, folder)) return found(folder);
    }
    const std::string of_python = search.ask_python();
    if (fits(of_python, "the packages of python3")) return found(of_python);
  }
  if (!other.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this muster-worker needs LibTorch ", search.version, "; found ",
                     absl::StrJoin(other, " and "), "; ", WhatToDo(search)));
  }
  return absl::NotFoundError(absl::StrCat("there is no LibTorch in ", absl::StrJoin(asked, ", "),
                                          "; this muster-worker needs LibTorch ", search.version,
                                          ": ", WhatToDo(search)));
}

std::string TorchOfPython() {
  return FirstLineOf(absl::StrCat("unset ", secret::kWorkerVariable, "; ", kAsk));
}

void PutFirst(const std::string& folder) {
  const char* value = std::getenv(kPath);
  const std::string before = value != nullptr ? value : "";
  setenv(kBefore, before.c_str(), 1);
  setenv(kPath, (before.empty() ? folder : folder + ":" + before).c_str(), 1);
}

void Restore() {
  const char* value = std::getenv(kBefore);
  if (value == nullptr) return;
  if (*value == '\0') {
    unsetenv(kPath);
  } else {
    setenv(kPath, value, 1);
  }
  unsetenv(kBefore);
}

}  // namespace muster::launcher
