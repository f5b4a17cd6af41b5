// The rows of a job that have changed since they were last put into a batch. Pure.
//
// TakeChanges compares the lists of limited length with the rows of the previous batches. So it
// finds all their changes, whichever code made them. The log of commands may be long, and itself
// records which commands have changed. The identity is written with a job's first rows, and with
// new setting_changes, but is never compared.
#ifndef MUSTER_COORDINATOR_STORE_JOB_ROWS_H_
#define MUSTER_COORDINATOR_STORE_JOB_ROWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life_row.h"
#include "coordinator/store/store.h"

namespace muster::store {

class JobRows {
 public:
  // Makes the rows of a job of which nothing is stored.
  JobRows() = default;
  // Makes the rows of a loaded job.
  explicit JobRows(jobs::Job stored) { TakeChanges(&stored); }

  // Returns all rows that differ from the rows of earlier calls. Clears the list of changed
  // commands in the log of `job`.
  Batch::JobRow TakeChanges(jobs::Job* job);
  // Returns the changed rows if only the rows of `ranks` have changed in the lists.
  Batch::JobRow TakeRanks(const jobs::Job& job, const std::set<uint32_t>& ranks);

  // The version_ceiling of the newest batch; 0 if nothing is stored.
  uint64_t version_ceiling() const { return life_.has_value() ? life_->version_ceiling : 0; }

 private:
  Batch::JobRow TakeFields(const jobs::Job& job);

  // The rows that were last put into a batch; absent if nothing is stored.
  std::optional<jobs::LifeRow> life_;
  std::optional<jobs::JobProgress> progress_;
  std::map<uint32_t, jobs::Rank> ranks_;
  std::map<std::string, CheckpointRow> checkpoints_;
  std::map<uint64_t, jobs::FailureNote> failures_;
  std::map<uint32_t, jobs::AttemptEnd> attempts_;
  std::map<uint64_t, jobs::SettingChange> setting_changes_;
  jobs::Trainability trainability_;  // without its history
  std::map<uint64_t, jobs::TrainabilityChange> trainability_changes_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_JOB_ROWS_H_
