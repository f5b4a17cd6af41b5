#include "client/cli/same_command.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/api/client.h"
#include "common/jobfile/continued.h"
#include "common/jobspec/changes.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/rules.h"
#include "common/manifest/name.h"
#include "common/problems/problems.h"

namespace muster::cli {
namespace {

using What = SameCommand::What;

bool IsOf(const v1::Job& job, const std::string& job_file) {
  return !job_file.empty() && job.job_file() == job_file;
}

std::string Name(const v1::Job& job) {
  return absl::StrCat("job ", job.id(),
                      job.job_file().empty() ? "" : absl::StrCat(" of ", job.job_file()));
}

// Returns whether the setting is at one of the paths or below.
bool IsAbout(absl::string_view setting, const std::set<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [setting](const std::string& path) {
    absl::string_view rest = setting;
    return absl::ConsumePrefix(&rest, path) && (rest.empty() || rest[0] == '.' || rest[0] == '[');
  });
}

// The differences of the file from the job. These are no differences:
// - changes of a retry, unless --set names them
// - settings from the checkpoint with which the job continues, if the file does not have them
std::vector<jobspec::Change> ChangesOf(const v1::Job& job, const v1::JobSpec& file,
                                       const std::vector<std::string>& settings) {
  std::set<std::string> retried, set, written;
  for (const v1::SettingChange& change : job.setting_changes()) retried.insert(change.path());
  for (const std::string& one : settings) set.insert(one.substr(0, one.find('=')));
  for (const jobspec::Line& line : jobspec::LinesOf(file)) written.insert(line.path);
  const bool goes_on = jobfile::GoesOn(file);
  // The coordinator has replaced a job's name by the directory of its checkpoint.
  if (!jobspec::IsDirectory(file.start().checkpoint())) written.erase("start.checkpoint");
  std::vector<jobspec::Change> changes;
  for (jobspec::Change& change :
       jobspec::Changes(jobspec::ResolveDefaults(job.spec()), jobspec::ResolveDefaults(file))) {
    if (IsAbout(change.path, retried) && !IsAbout(change.path, set)) continue;
    if (goes_on && !written.contains(change.path)) continue;
    changes.push_back(std::move(change));
  }
  return changes;
}

std::string Text(const std::vector<jobspec::Change>& changes) {
  Problems texts;
  for (const jobspec::Change& change : changes) {
    const auto shown = [](const std::string& value) { return value.empty() ? "left out" : value; };
    texts.Add(
        absl::StrCat(change.path, ": ", shown(change.old_value), " -> ", shown(change.new_value)));
  }
  return texts.Text();
}

// The changes in the form of RetryJob. Empty: a change is not allowed, or has no such form.
std::vector<std::string> AsSettings(const v1::Job& job, const v1::JobSpec& file,
                                    const std::vector<jobspec::Change>& changes) {
  const v1::SpecProblems fixed =
      jobspec::FixedSettings(jobspec::ResolveDefaults(job.spec()), jobspec::ResolveDefaults(file));
  for (const v1::SpecProblem& problem : fixed.problems()) {
    const bool counts = std::any_of(
        changes.begin(), changes.end(),
        [&problem](const jobspec::Change& change) { return change.path == problem.path(); });
    if (counts) return {};
  }
  std::vector<std::string> settings;
  for (const jobspec::Change& change : changes) {
    if (change.new_value.empty()) return {};
    // Numbers and words stay unquoted. A text in quotes is the same in YAML and in JSON.
    const bool plain = std::all_of(change.new_value.begin(), change.new_value.end(), [](char c) {
      return absl::ascii_isalnum(c) || absl::StrContains("_.+-", c);
    });
    settings.push_back(
        absl::StrCat(change.path, "=",
                     plain ? change.new_value
                           : absl::StrCat("\"", absl::Utf8SafeCEscape(change.new_value), "\"")));
  }
  return settings;
}

// may_change: the next attempt of the job can have the changes.
SameCommand Changed(const v1::Job& job, const std::string& changes, bool may_change) {
  return {What::kRefuse,
          job,
          {},
          absl::StrCat(Name(job), " has reached step ", job.step(),
                       " with other settings: ", changes, ". With its own settings it goes on; ",
                       may_change ? "--retry goes on with the new ones; " : "",
                       "--new begins another job")};
}

SameCommand DecideUnfinished(const v1::Job& job, const std::string& job_file,
                             const v1::JobSpec& spec, RerunMode mode,
                             const std::vector<std::string>& settings) {
  const std::vector<jobspec::Change> differences = ChangesOf(job, spec, settings);
  const std::string changes = Text(differences);
  if (!changes.empty() && !IsOf(job, job_file)) {
    return {What::kRefuse,
            job,
            {},
            absl::StrCat("the state directory holds the unfinished ", Name(job),
                         ", which has another job file; finish it with its own job file, or use "
                         "another --state")};
  }
  if (job.state() == v1::Job::STOPPING) {
    return {What::kAwaitEnd, job, {}, absl::StrCat("job ", job.id(), " is being stopped")};
  }
  if (mode == RerunMode::kAnotherJob) {
    return {What::kStop, job, {}, absl::StrCat("job ", job.id(), " is stopped, because of --new")};
  }
  if (!changes.empty()) {
    const bool may_change = AsSettings(job, spec, differences).size() == differences.size();
    if (mode != RerunMode::kNextAttempt || !may_change) return Changed(job, changes, may_change);
    return {What::kStop,
            job,
            {},
            absl::StrCat("job ", job.id(), " is stopped, so that --retry can change settings")};
  }
  return {What::kFollow,
          job,
          {},
          absl::StrCat("job ", job.id(), " continues; it had reached step ", job.step())};
}

}  // namespace

SameCommand Decide(const std::vector<v1::Job>& jobs, const std::string& job_file,
                   const v1::JobSpec& spec, RerunMode mode,
                   const std::vector<std::string>& settings) {
  for (const v1::Job& job : jobs) {
    if (!client::HasEnded(job.state())) {
      return DecideUnfinished(job, job_file, spec, mode, settings);
    }
  }
  const auto newest = std::find_if(jobs.begin(), jobs.end(),
                                   [&](const v1::Job& job) { return IsOf(job, job_file); });
  if (mode == RerunMode::kAnotherJob) return {};
  if (newest == jobs.end()) {
    if (mode != RerunMode::kNextAttempt) return {};
    return {What::kRefuse, {}, {}, "--retry: the state directory holds no job of this job file"};
  }
  if (newest->state() == v1::Job::SUCCEEDED) {
    if (mode != RerunMode::kNextAttempt) return {};
    return {What::kRefuse,
            *newest,
            {},
            absl::StrCat("--retry: ", Name(*newest), " SUCCEEDED: there is nothing left to do")};
  }
  const bool out_of_time = newest->reason() == "TIME_LIMIT";
  if (newest->state() == v1::Job::CANCELLED && mode != RerunMode::kNextAttempt) {
    return {What::kSubmit,
            {},
            {},
            absl::StrCat("another job begins; job ", newest->id(), " was stopped at step ",
                         newest->step(), ", and --retry would go on with it")};
  }
  const std::vector<jobspec::Change> changes = ChangesOf(*newest, spec, settings);
  if (mode == RerunMode::kNextAttempt || out_of_time) {
    const std::vector<std::string> may_change = AsSettings(*newest, spec, changes);
    if (may_change.size() != changes.size()) {
      return Changed(*newest, Text(changes), false);
    }
    return {What::kNextAttempt, *newest, may_change,
            absl::StrCat("job ", newest->id(), ": ", newest->state_reason(), "; attempt ",
                         newest->attempt() + 1, " continues from its newest checkpoint",
                         changes.empty() ? "" : absl::StrCat(", with ", Text(changes)))};
  }
  return {
      What::kFailed,
      *newest,
      {},
      absl::StrCat(Name(*newest), " FAILED at step ", newest->step(), ": ", newest->state_reason(),
                   changes.empty() ? "" : absl::StrCat("; changed since: ", Text(changes)))};
}

namespace {

// Characters with the same meaning in a shell, and in YAML between braces, as in a path.
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
    if (newest.has_value() &&
        std::tie(name->generation, name->step) <= std::tie(newest->generation, newest->step)) {
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
