#include "coordinator/store/metrics_tables.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/metrics/thinning.h"
#include "coordinator/store/tables.h"

namespace muster::store {

absl::Status MetricsTables::WriteStep(const MetricsRow& row) {
  uint64_t newest = row.step;
  uint64_t newest_generation = row.generation;
  if (!FollowsAllSteps(row)) {
    // The step may be computed again. Then the rows of later steps are not valid any more.
    RETURN_IF_ERROR(db_.Run("DELETE FROM steps WHERE job_id = ? AND step > ? AND generation < ?",
                            row.job_id, row.step, row.generation));
    for (const char* passes : {"validations", "tests"}) {
      RETURN_IF_ERROR(db_.Run(absl::StrCat("DELETE FROM ", passes,
                                           " WHERE job_id = ? AND step >= ? AND generation < ?"),
                              row.job_id, row.step, row.generation));
    }
    ASSIGN_OR_RETURN(const bool late, IsLate(row));
    if (late) return absl::OkStatus();
    ASSIGN_OR_RETURN(newest, Newest("steps", "step", row.job_id));
    newest = std::max(newest, row.step);
    ASSIGN_OR_RETURN(newest_generation, Newest("steps", "generation", row.job_id));
    newest_generation = std::max(newest_generation, row.generation);
  }
  RETURN_IF_ERROR(db_.Put<StepsTable>(row));
  newest_generations_[row.job_id] = newest_generation;
  return Thin(row.job_id, newest, &steps_);
}

absl::Status MetricsTables::WriteValidation(const MetricsRow& row) {
  return WritePass<ValidationsTable>(row, &validations_);
}

absl::Status MetricsTables::WriteTest(const MetricsRow& row) {
  return WritePass<TestsTable>(row, &tests_);
}

void MetricsTables::Forget(const std::string& job_id) {
  for (Numbering* rows : {&steps_, &validations_, &tests_}) rows->newest.erase(job_id);
  newest_generations_.erase(job_id);
}

void MetricsTables::ForgetAll() {
  for (Numbering* rows : {&steps_, &validations_, &tests_}) rows->newest.clear();
  newest_generations_.clear();
}

bool MetricsTables::FollowsAllSteps(const MetricsRow& row) const {
  const auto step = steps_.newest.find(row.job_id);
  const auto generation = newest_generations_.find(row.job_id);
  return step != steps_.newest.end() && step->second < row.step &&
         generation != newest_generations_.end() && generation->second <= row.generation;
}

absl::StatusOr<bool> MetricsTables::IsLate(const MetricsRow& row) {
  ASSIGN_OR_RETURN(
      const uint64_t newer,
      db_.Number("SELECT 1 FROM steps WHERE job_id = ? AND step <= ? AND generation > ? LIMIT 1",
                 row.job_id, row.step, row.generation));
  return newer > 0;
}

absl::StatusOr<uint64_t> MetricsTables::Newest(const char* table, const char* column,
                                               const std::string& job_id) {
  return db_.Number(absl::StrCat("SELECT max(", column, ") FROM ", table, " WHERE job_id = ?"),
                    job_id);
}

template <typename Table>
absl::Status MetricsTables::WritePass(const MetricsRow& row, Numbering* passes) {
  if (!FollowsAllSteps(row)) {
    ASSIGN_OR_RETURN(const bool late, IsLate(row));
    if (late) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const uint64_t before,
                   db_.Number(absl::StrCat("SELECT max(pass) FROM ", passes->table,
                                           " WHERE job_id = ? AND step < ?"),
                              row.job_id, row.step));
  RETURN_IF_ERROR(db_.Put<Table>(row, before + 1));
  ASSIGN_OR_RETURN(const uint64_t newest, Newest(passes->table, "pass", row.job_id));
  return Thin(row.job_id, newest, passes);
}

absl::Status MetricsTables::Thin(const std::string& job_id, uint64_t newest, Numbering* numbering) {
  std::vector<uint64_t> dropped;
  const auto known = numbering->newest.find(job_id);
  if (known != numbering->newest.end() && known->second + 1 == newest) {
    dropped = metrics::DroppedBy(newest, kept_);
  } else {
    // The row is the first since the file was opened, perhaps with a smaller limit, or is written
    // again.
    Statement rows = db_.Prepare(absl::StrCat("SELECT ", numbering->column, " FROM ",
                                              numbering->table, " WHERE job_id = ?"));
    rows.Bind(job_id);
    while (rows.Next()) {
      const uint64_t number = rows.Uint();
      if (!metrics::Keeps(number, newest, kept_)) dropped.push_back(number);
    }
    RETURN_IF_ERROR(rows.status());
  }
  for (const uint64_t number : dropped) {
    RETURN_IF_ERROR(db_.Run(absl::StrCat("DELETE FROM ", numbering->table, " WHERE job_id = ? AND ",
                                         numbering->column, " = ?"),
                            job_id, number));
  }
  numbering->newest[job_id] = newest;
  return absl::OkStatus();
}

}  // namespace muster::store
