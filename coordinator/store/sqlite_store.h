// The store in one SQLite file, DIRECTORY/muster.db (docs/store.md). Write-ahead log,
// synchronous=FULL: a batch for which Commit() has returned OK survives a power failure.
// DIRECTORY/lock prevents a second coordinator from using the directory. DIRECTORY/ballast reserves
// the disk space that is freed when the disk is full.
#ifndef MUSTER_COORDINATOR_STORE_SQLITE_STORE_H_
#define MUSTER_COORDINATOR_STORE_SQLITE_STORE_H_

#include <sqlite3.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/ballast.h"
#include "coordinator/store/columns.h"
#include "coordinator/store/statement.h"
#include "coordinator/store/store.h"

namespace muster::store {

class SqliteStore : public Store {
 public:
  // Makes the directory and the file where they are missing. Errors: FAILED_PRECONDITION: another
  // coordinator uses the directory, or a newer version of Muster wrote the file; DATA_LOSS: the
  // file is no database or damaged; PERMISSION_DENIED, UNAVAILABLE, RESOURCE_EXHAUSTED: the error
  // of the disk. If the disk is full and the file cannot be opened without more space, the ballast
  // is deleted.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& directory,
                                                           const StoreOptions& options = {});
  // Closes the file and frees the lock.
  ~SqliteStore() override;

  absl::Status Commit(const Batch& batch) override;
  bool ReleaseReserve() override { return ballast_.Release(); }
  bool RestoreReserve() override;
  bool OpenedShortOfRoom() const override { return opened_short_of_room_; }
  absl::StatusOr<std::string> Backup() override;
  absl::StatusOr<Image> Load() override;
  absl::StatusOr<std::vector<MetricsRow>> ReadSteps(const std::string& job_id, uint64_t from_step,
                                                    size_t limit) override;
  absl::StatusOr<std::vector<MetricsRow>> ReadValidations(const std::string& job_id,
                                                          uint64_t from_step,
                                                          size_t limit) override;
  absl::StatusOr<std::vector<MetricsRow>> ReadTests(const std::string& job_id, uint64_t from_step,
                                                    size_t limit) override;
  absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id, uint64_t after_sequence,
                                               std::optional<uint32_t> rank, size_t limit) override;

 private:
  SqliteStore(const std::string& directory, const StoreOptions& options)
      : path_(directory + "/muster.db"), options_(options), ballast_(directory + "/ballast") {}

  // True if deleted rows leave as much space within the file as the ballast takes up.
  bool HasRoomWithin();
  absl::Status Lock(const std::string& directory);
  absl::Status OpenFile();
  void CloseFile();
  absl::Status Remove(const Batch& batch);
  absl::Status Write(const Batch& batch);
  absl::Status WriteStep(const MetricsRow& row);
  // The table and the column in which the rows of one kind are numbered within a job.
  struct Numbering {
    const char* table;
    const char* column;
    // The newest number of each job that was written since the file was opened: the rows that it
    // does not keep are already deleted.
    std::map<std::string, uint64_t> newest;
  };
  // Writes a row of a table of passes.
  template <typename Table>
  absl::Status WritePass(const MetricsRow& row, Numbering* passes);
  template <typename Table>
  absl::StatusOr<std::vector<MetricsRow>> ReadPasses(const std::string& job_id, uint64_t from_step,
                                                     size_t limit);
  // True if it is known that all stored steps of the job are earlier and of no newer generation.
  bool FollowsAllSteps(const MetricsRow& row) const;
  // Whether a newer generation has computed this step or an earlier one: then the row of this
  // generation is ignored.
  absl::StatusOr<bool> IsLate(const std::string& job_id, uint64_t step, uint64_t generation);
  // The newest number in the table. 0: the job has no row there.
  absl::StatusOr<uint64_t> Newest(const Numbering& numbering, const std::string& job_id);
  // Deletes the rows that are not kept any more now that the row `newest` is written.
  absl::Status Thin(const std::string& job_id, uint64_t newest, Numbering* numbering);
  absl::Status WriteJob(const Batch::JobRow& row);
  absl::Status CopyTo(const std::string& path);
  absl::Status RemoveRows(const Batch::JobRow& row);
  // Writes one row of a table of tables.h.
  template <typename Table, typename... Values>
  absl::Status PutRow(const Values&... values) {
    return Put<Table>(db_, &statements_, values...);
  }
  // Reads rows of a table of tables.h.
  template <typename Table, typename... Values>
  Rows<Table> Select(const std::string& which, const Values&... values) {
    return Rows<Table>(db_, &statements_, which, values...);
  }
  absl::Status LoadJobs(std::map<std::string, jobs::Job>* jobs);
  absl::Status LoadLists(std::map<std::string, jobs::Job>* jobs);

  const std::string path_;
  const StoreOptions options_;
  Numbering steps_{.table = "steps", .column = "step"};
  Numbering validations_{.table = "validations", .column = "pass"};
  Numbering tests_{.table = "tests", .column = "pass"};
  // The newest generation that has stored a step, for the jobs in steps_.newest.
  std::map<std::string, uint64_t> newest_generations_;
  Ballast ballast_;
  bool opened_short_of_room_ = false;
  int lock_fd_ = -1;
  sqlite3* db_ = nullptr;
  StatementCache statements_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_SQLITE_STORE_H_
