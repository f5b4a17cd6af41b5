#include "client/cli/continuation.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/manifest/name.h"

namespace muster::cli {
namespace {

// Characters that mean the same in a shell, and in YAML between braces, as in a path.
bool IsPlain(const std::string& text, const char* others) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(others, c);
  });
}

std::string YamlText(const std::string& path) {
  if (IsPlain(path, "/._-+")) return path;
  return absl::StrCat("\"", absl::StrReplaceAll(path, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

bool SetsStart(const std::string& setting) {
  return absl::StartsWith(setting, "start=") || absl::StartsWith(setting, "start.");
}

}  // namespace

std::string NewestCheckpoint(const std::string& job_folder) {
  std::optional<manifest::CheckpointName> newest;
  std::string path;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(job_folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto name = manifest::ParseFinalName(entry->path().filename().string());
    if (!name.has_value()) continue;
    if (newest.has_value() && std::tie(name->generation, name->step) <=
                                  std::tie(newest->generation, newest->step)) {
      continue;
    }
    newest = name;
    path = entry->path().string();
  }
  return path;
}

std::string ShellLine(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ", [](std::string* line, const std::string& word) {
    if (IsPlain(word, "/._-+=:,@%")) return absl::StrAppend(line, word);
    absl::StrAppend(line, "'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
  });
}

std::vector<std::string> ContinueFrom(const std::vector<std::string>& words,
                                      const std::string& checkpoint) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--new" || word == "--retry") continue;
    if (!checkpoint.empty()) {
      if (absl::StartsWith(word, "--set=") && SetsStart(word.substr(6))) continue;
      if (word == "--set" && i + 1 < words.size() && SetsStart(words[i + 1])) {
        ++i;
        continue;
      }
    }
    kept.push_back(word);
  }
  if (checkpoint.empty()) return kept;
  kept.push_back("--set");
  kept.push_back(absl::StrCat("start={checkpoint: ", YamlText(checkpoint), ", what: everything}"));
  return kept;
}

}  // namespace muster::cli
