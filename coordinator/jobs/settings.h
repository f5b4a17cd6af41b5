// The settings of the job file that a retry changes, for the next attempt and all later attempts.
// Pure.
#ifndef MUSTER_COORDINATOR_JOBS_SETTINGS_H_
#define MUSTER_COORDINATOR_JOBS_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// The settings that a retry asks for.
struct NewSettings {
  // The same as in JobIdentity, with the new values.
  std::string spec;
  Plan plan;
  // The changes, each with its path and its two values; empty if nothing changes.
  std::vector<SettingChange> changes;
};

// Applies a retry's settings to a job whose next attempt has begun (OnNextAttempt). `command`: the
// number of the retry in the job's log. If the learning rate changes, earlier commands about it do
// not count any more.
void ChangeSettings(Job* job, NewSettings settings, const std::string& requester, uint64_t command,
                    absl::Time now);

// Returns the first generation that uses the job file's learning rate, even if a checkpoint of an
// earlier generation has another rate. 0: a checkpoint's rate counts.
uint64_t LearningRateSince(const Job& job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_SETTINGS_H_
