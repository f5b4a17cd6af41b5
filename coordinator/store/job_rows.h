// Which rows of a job have changed since they were last put into a batch. Pure.
//
// The lists that have a bound are compared with what was put into a batch before, so that no row
// can be forgotten whoever changes it; the log of commands, which may be long, says itself which
// ones have changed.
#ifndef MUSTER_COORDINATOR_STORE_JOB_ROWS_H_
#define MUSTER_COORDINATOR_STORE_JOB_ROWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/jobs/job.h"
#include "coordinator/store/store.h"

namespace muster::store {

class JobRows {
 public:
  // Of a job of which nothing is stored.
  JobRows() = default;
  // Of a job as it was loaded.
  explicit JobRows(jobs::Job stored) { TakeChanges(&stored); }

  // All rows that differ from those of the calls before. Takes the changed commands from its log.
  Batch::JobRow TakeChanges(jobs::Job* job);
  // The same where no list has changed but `ranks` of the ranks.
  Batch::JobRow TakeRanks(const jobs::Job& job, const std::set<uint32_t>& ranks);

  // Of the newest batch. 0: nothing is stored.
  uint64_t version_ceiling() const { return life_.has_value() ? life_->version_ceiling : 0; }

 private:
  Batch::JobRow TakeFields(const jobs::Job& job);

  // Rows as they were last put into a batch. Absent: nothing is stored.
  std::optional<jobs::JobLife> life_;
  std::optional<jobs::JobProgress> progress_;
  std::map<uint32_t, jobs::Rank> ranks_;
  std::map<std::string, CheckpointRow> checkpoints_;
  std::map<uint64_t, jobs::FailureNote> failures_;
  std::map<uint32_t, jobs::AttemptEnd> attempts_;
  jobs::Trainability trainability_;  // without its history
  std::map<uint64_t, jobs::TrainabilityChange> trainability_changes_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_JOB_ROWS_H_
