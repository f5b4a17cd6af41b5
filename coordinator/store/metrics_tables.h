// The tables of a job's measurements: of steps, of validation passes, and of tests. Rows that
// training computes again are replaced as Batch says (store.h). Old rows are thinned out
// (coordinator/metrics). Not thread-safe.
#ifndef MUSTER_COORDINATOR_STORE_METRICS_TABLES_H_
#define MUSTER_COORDINATOR_STORE_METRICS_TABLES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/store/database.h"
#include "coordinator/store/store.h"

namespace muster::store {

class MetricsTables {
 public:
  // `db` outlives this object. `kept`: the number of rows of each kind that are kept per job.
  MetricsTables(Database* db, uint64_t kept) : db_(*db), kept_(kept) {}

  absl::Status WriteStep(const MetricsRow& row);
  absl::Status WriteValidation(const MetricsRow& row);
  absl::Status WriteTest(const MetricsRow& row);

  // Handles the removal of the job's rows.
  void Forget(const std::string& job_id);
  // Handles the rollback of the transaction.
  void ForgetAll();

 private:
  // The table of one kind of rows, and the column with their numbers within a job.
  struct Numbering {
    const char* table;
    const char* column;
    // The newest number of each job that was written since the file was opened. Older rows that it
    // does not keep are already deleted.
    std::map<std::string, uint64_t> newest;
  };

  // Writes a row of a table of passes.
  template <typename Table>
  absl::Status WritePass(const MetricsRow& row, Numbering* passes);
  // Returns true if all stored steps of the job are known to be earlier and of no newer generation.
  bool FollowsAllSteps(const MetricsRow& row) const;
  // Returns whether a newer generation has computed this step or an earlier step. Then this row is
  // ignored.
  absl::StatusOr<bool> IsLate(const MetricsRow& row);
  // Returns the newest number in the column; 0 if the job has no row there.
  absl::StatusOr<uint64_t> Newest(const char* table, const char* column, const std::string& job_id);
  // Deletes the rows that are not kept any more after the row `newest` is written.
  absl::Status Thin(const std::string& job_id, uint64_t newest, Numbering* numbering);

  Database& db_;
  const uint64_t kept_;
  Numbering steps_{.table = "steps", .column = "step"};
  Numbering validations_{.table = "validations", .column = "pass"};
  Numbering tests_{.table = "tests", .column = "pass"};
  // The newest generation that has stored a step, for the jobs in steps_.newest.
  std::map<std::string, uint64_t> newest_generations_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_METRICS_TABLES_H_
