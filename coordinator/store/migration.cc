#include "coordinator/store/migration.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/statement.h"

namespace muster::store {

absl::Status CheckVersion(Database* db) {
  ASSIGN_OR_RETURN(const uint64_t number, db->Number("PRAGMA user_version"));
  const int version = static_cast<int>(number);
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the file is of schema version ", version,
                                                      ", this musterd knows up to ", kSchemaVersion,
                                                      "; use the newer musterd that wrote it"));
  }
  if (version < kBaselineVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the file is of schema version ", version,
                     ", which a musterd older than 0.3.0 wrote; this musterd knows ",
                     kBaselineVersion, " to ", kSchemaVersion,
                     "; the file was not changed; start musterd 0.3.0 on it once, then this one "
                     "(docs/how-to/upgrade.md)"));
  }
  return absl::OkStatus();
}

absl::Status Migrate(Database* db) {
  ASSIGN_OR_RETURN(uint64_t version, db->Number("PRAGMA user_version"));
  if (version == kSchemaVersion) return absl::OkStatus();
  std::string sql;
  if (version == 0) {
    sql = kBaseline;
    version = kBaselineVersion;
  }
  for (; version < kSchemaVersion; ++version) sql += kMigrations[version - kBaselineVersion];
  const std::string all =
      absl::StrCat("BEGIN IMMEDIATE;", sql, "PRAGMA user_version=", kSchemaVersion, ";COMMIT;");
  // sqlite3_exec keeps the text of the migrations out of the error, where it would hide the cause.
  if (sqlite3_exec(db->get(), all.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) {
    return absl::OkStatus();
  }
  return SqliteError(db->get(), absl::StrCat("migration to schema version ", kSchemaVersion));
}

}  // namespace muster::store
