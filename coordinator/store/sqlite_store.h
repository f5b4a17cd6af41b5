// The store in one SQLite file, DIRECTORY/muster.db (docs/internals/store.md). With a write-ahead
// log and synchronous=FULL, a batch survives a power failure after Commit() has returned OK.
// DIRECTORY/lock prevents a second coordinator from using the directory. DIRECTORY/ballast reserves
// disk space, which is freed when the disk is full.
#ifndef MUSTER_COORDINATOR_STORE_SQLITE_STORE_H_
#define MUSTER_COORDINATOR_STORE_SQLITE_STORE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/database.h"
#include "coordinator/store/disk_reserve.h"
#include "coordinator/store/metrics_tables.h"
#include "coordinator/store/store.h"

namespace muster::store {

class SqliteStore : public Store {
 public:
  // Opens the store, and makes a missing directory or file. If the disk is full and the file cannot
  // be opened without more space, the ballast is deleted. Errors: FAILED_PRECONDITION: another
  // coordinator uses the directory, or a newer version of Muster wrote the file; DATA_LOSS: the
  // file is no database or damaged; PERMISSION_DENIED, UNAVAILABLE, RESOURCE_EXHAUSTED: the error
  // of the disk.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& directory,
                                                           const StoreOptions& options = {});
  // Closes the file and frees the lock.
  ~SqliteStore() override;

  absl::Status Commit(const Batch& batch) override;
  bool ReleaseReserve() override { return reserve_.Release(); }
  bool RestoreReserve() override;
  bool OpenedShortOfRoom() const override { return opened_short_of_room_; }
  absl::StatusOr<std::string> Backup() override;
  absl::StatusOr<Image> Load() override;
  absl::StatusOr<std::vector<MetricsRow>> ReadMetrics(MetricsOf of, const std::string& job_id,
                                                      uint64_t from_step, size_t limit) override;
  absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id, uint64_t after_sequence,
                                               std::optional<uint32_t> rank, size_t limit) override;

 private:
  SqliteStore(const std::string& directory, const StoreOptions& options)
      : path_(directory + "/muster.db"),
        reserve_(directory + "/ballast"),
        metrics_(&db_, options.kept_metrics) {}

  // Returns whether the file has as much free space from deleted rows as the ballast takes up.
  bool HasRoomWithin();
  absl::Status Lock(const std::string& directory);
  absl::Status OpenFile();
  absl::Status Remove(const Batch& batch);
  absl::Status Write(const Batch& batch);
  absl::Status WriteJob(const Batch::JobRow& row);
  absl::Status LoadInto(Image* image);
  absl::Status LoadJobs(std::map<std::string, jobs::Job>* jobs);
  absl::Status LoadLists(std::map<std::string, jobs::Job>* jobs);

  const std::string path_;
  DiskReserve reserve_;
  bool opened_short_of_room_ = false;
  int lock_fd_ = -1;
  Database db_;
  MetricsTables metrics_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_SQLITE_STORE_H_
