#include "client/cli/same_command.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/api/client.h"
#include "common/jobspec/changes.h"
#include "common/jobspec/jobspec.h"
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

// The settings of the job that retries have changed: the newest decision counts, not the file.
std::vector<std::string> Retried(const v1::Job& job) {
  std::vector<std::string> paths;
  for (const v1::SettingChange& change : job.setting_changes()) paths.push_back(change.path());
  return paths;
}

// Whether the setting is at one of the paths or below.
bool IsAbout(absl::string_view setting, const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [setting](const std::string& path) {
    absl::string_view rest = setting;
    return absl::ConsumePrefix(&rest, path) && (rest.empty() || rest[0] == '.' || rest[0] == '[');
  });
}

SameCommand Changed(const v1::Job& job, const std::string& changes) {
  return {What::kRefuse, job,
          absl::StrCat(Name(job), " has reached step ", job.step(),
                       " with other settings: ", changes,
                       ". With its own settings it goes on; --new begins another job")};
}

SameCommand DecideUnfinished(const v1::Job& job, const std::string& job_file,
                             const v1::JobSpec& spec, Wish wish) {
  const std::string changes = Changes(job.spec(), spec, Retried(job));
  if (!changes.empty() && !IsOf(job, job_file)) {
    return {What::kRefuse, job,
            absl::StrCat("the state directory holds the unfinished ", Name(job),
                         ", which has another job file; finish it with its own job file, or use "
                         "another --state")};
  }
  if (job.state() == v1::Job::STOPPING) {
    return {What::kAwaitEnd, job, absl::StrCat("job ", job.id(), " is being stopped")};
  }
  if (wish == Wish::kAnotherJob) {
    return {What::kStop, job, absl::StrCat("job ", job.id(), " is stopped, because of --new")};
  }
  if (!changes.empty()) return Changed(job, changes);
  return {What::kFollow, job,
          absl::StrCat("job ", job.id(), " continues from step ", job.step())};
}

}  // namespace

std::string Changes(const v1::JobSpec& before, const v1::JobSpec& now,
                    const std::vector<std::string>& known) {
  Problems differing;
  for (const jobspec::Change& change :
       jobspec::Changes(jobspec::ResolveDefaults(before), jobspec::ResolveDefaults(now))) {
    if (IsAbout(change.path, known)) continue;
    const auto shown = [](const std::string& value) { return value.empty() ? "left out" : value; };
    differing.Add(absl::StrCat(change.path, ": ", shown(change.old_value), " -> ",
                               shown(change.new_value)));
  }
  return differing.Text();
}

SameCommand Decide(const std::vector<v1::Job>& jobs, const std::string& job_file,
                   const v1::JobSpec& spec, Wish wish,
                   const std::vector<std::string>& settings) {
  for (const v1::Job& job : jobs) {
    if (!client::HasEnded(job.state())) return DecideUnfinished(job, job_file, spec, wish);
  }
  const auto newest = std::find_if(jobs.begin(), jobs.end(),
                                   [&](const v1::Job& job) { return IsOf(job, job_file); });
  if (wish == Wish::kAnotherJob) return {};
  if (newest == jobs.end()) {
    if (wish != Wish::kNextAttempt) return {};
    return {What::kRefuse, {}, "--retry: the state directory holds no job of this job file"};
  }
  if (newest->state() == v1::Job::SUCCEEDED) {
    if (wish != Wish::kNextAttempt) return {};
    return {What::kRefuse, *newest,
            absl::StrCat("--retry: ", Name(*newest), " SUCCEEDED: there is nothing left to do")};
  }
  const bool out_of_time = newest->reason() == "TIME_LIMIT";
  if (newest->state() == v1::Job::CANCELLED && wish != Wish::kNextAttempt) return {};
  std::vector<std::string> known = Retried(*newest);
  if (wish == Wish::kNextAttempt) {
    for (const std::string& setting : settings) {
      known.push_back(setting.substr(0, setting.find('=')));
    }
  }
  const std::string changes = Changes(newest->spec(), spec, known);
  if (wish == Wish::kNextAttempt || out_of_time) {
    if (!changes.empty()) return Changed(*newest, changes);
    return {What::kNextAttempt, *newest,
            absl::StrCat("job ", newest->id(), ": ", newest->state_reason(), "; attempt ",
                         newest->attempt() + 1, " continues from its newest checkpoint")};
  }
  return {What::kFailed, *newest,
          absl::StrCat(Name(*newest), " FAILED at step ", newest->step(), ": ",
                       newest->state_reason(),
                       changes.empty() ? "" : absl::StrCat("; changed since: ", changes))};
}

}  // namespace muster::cli
