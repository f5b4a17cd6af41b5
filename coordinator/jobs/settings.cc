#include "coordinator/jobs/settings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/events.h"

namespace muster::jobs {
namespace {

// Returns true for "optimizer.adamw.lr". Commands do not change a group's rate.
bool IsLearningRate(const std::string& path) {
  return absl::StartsWith(path, "optimizer.") && absl::EndsWith(path, ".lr") &&
         !absl::StartsWith(path, "optimizer.groups");
}

std::string Shown(const std::string& value) { return value.empty() ? "left out" : value; }

}  // namespace

void ChangeSettings(Job* job, NewSettings settings, const std::string& requester, uint64_t command,
                    absl::Time now) {
  if (settings.changes.empty()) return;
  job->spec = std::move(settings.spec);
  job->plan = std::move(settings.plan);
  // The next session reports the number.
  job->fit_steps = 0;
  for (SettingChange& change : settings.changes) {
    change.attempt = job->attempt;
    change.generation = std::max(job->generation, job->newest_generation_seen);
    change.time = now;
    change.requester = requester;
    if (IsLearningRate(change.path)) {
      job->commands.Replace(v1::Operation::SET_LEARNING_RATE, command);
    }
    AddEvent(job, now, "SETTING_CHANGED",
             absl::StrCat(change.path, ": ", Shown(change.old_value), " becomes ",
                          Shown(change.new_value), ", as ", requester, " asked"));
    job->setting_changes.push_back(std::move(change));
  }
}

uint64_t LearningRateSince(const Job& job) {
  const auto& changes = job.setting_changes;
  const auto newest = std::find_if(
      changes.rbegin(), changes.rend(),
      [](const SettingChange& change) { return IsLearningRate(change.path); });
  return newest == changes.rend() ? 0 : newest->generation + 1;
}

}  // namespace muster::jobs
