// The rows of a job, in the tables of tables.h.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/tables.h"

namespace muster::store {

absl::Status SqliteStore::WriteJob(const Batch::JobRow& row) {
  const std::string& id = row.job_id;
  if (row.identity.has_value()) RETURN_IF_ERROR(db_.Put<JobsTable>(*row.identity));
  if (row.life.has_value()) RETURN_IF_ERROR(db_.Put<JobLifeTable>(id, *row.life));
  if (row.progress.has_value()) RETURN_IF_ERROR(db_.Put<JobProgressTable>(id, *row.progress));
  RETURN_IF_ERROR(RemoveRows(row));
  for (const auto& [number, rank] : row.ranks.put) {
    RETURN_IF_ERROR(db_.Put<RanksTable>(id, number, rank));
  }
  for (const auto& [path, checkpoint] : row.checkpoints.put) {
    RETURN_IF_ERROR(db_.Put<CheckpointsTable>(id, checkpoint));
  }
  for (const auto& [attempt, end] : row.attempts.put) {
    RETURN_IF_ERROR(db_.Put<AttemptsTable>(id, end));
  }
  for (const auto& [position, change] : row.setting_changes.put) {
    RETURN_IF_ERROR(db_.Put<SettingChangesTable>(id, position, change));
  }
  for (const auto& [position, note] : row.failures.put) {
    RETURN_IF_ERROR(db_.Put<FailuresTable>(id, position, note));
  }
  for (const auto& [number, command] : row.commands.put) {
    RETURN_IF_ERROR(db_.Put<CommandsTable>(id, command));
  }
  if (row.trainability.has_value()) {
    RETURN_IF_ERROR(db_.Put<TrainabilityTable>(id, *row.trainability));
  }
  for (const auto& [version, change] : row.trainability_changes.put) {
    RETURN_IF_ERROR(db_.Put<TrainabilityChangesTable>(id, change));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::RemoveRows(const Batch::JobRow& row) {
  const auto remove = [&](const char* table, const char* column, const auto& keys) {
    for (const auto& key : keys) {
      RETURN_IF_ERROR(
          db_.Run(absl::StrCat("DELETE FROM ", table, " WHERE job_id = ? AND ", column, " = ?"),
                  row.job_id, key));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(remove("ranks", "rank", row.ranks.removed));
  RETURN_IF_ERROR(remove("checkpoints", "path", row.checkpoints.removed));
  RETURN_IF_ERROR(remove("failures", "position", row.failures.removed));
  RETURN_IF_ERROR(remove("commands", "number", row.commands.removed));
  RETURN_IF_ERROR(remove("attempts", "attempt", row.attempts.removed));
  RETURN_IF_ERROR(remove("setting_changes", "position", row.setting_changes.removed));
  return remove("trainability_changes", "version", row.trainability_changes.removed);
}

}  // namespace muster::store
