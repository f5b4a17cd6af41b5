// Settings of the job file that a retry changes: the next attempt and all later ones have them.
// Pure.
#ifndef MUSTER_COORDINATOR_JOBS_SETTINGS_H_
#define MUSTER_COORDINATOR_JOBS_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// What a retry asks for.
struct NewSettings {
  // As in JobIdentity, with the new values.
  std::string spec;
  Plan plan;
  // Each with its path and its two values. Empty: nothing changes.
  std::vector<SettingChange> changes;
};

// For a job whose next attempt has begun (OnNextAttempt). `command`: the number of the retry in the
// job's log. If the learning rate is among the changes, no earlier command decides on it any more.
void ChangeSettings(Job* job, NewSettings settings, const std::string& requester, uint64_t command,
                    absl::Time now);

// The first generation for which the job file's learning rate holds, whatever learning rate a
// checkpoint of an earlier generation has. 0: a checkpoint's rate holds.
uint64_t LearningRateSince(const Job& job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_SETTINGS_H_
