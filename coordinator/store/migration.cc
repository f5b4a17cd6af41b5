#include "coordinator/store/migration.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/statement.h"

namespace muster::store {
namespace {

absl::StatusOr<int> VersionOf(sqlite3* db) {
  StatementCache cache;
  int version = 0;
  absl::Status status;
  {
    Statement statement(db, &cache, "PRAGMA user_version");
    if (statement.Next()) version = static_cast<int>(statement.Int());
    status = statement.status();
  }
  for (const auto& [sql, statement] : cache) sqlite3_finalize(statement);
  RETURN_IF_ERROR(status);
  return version;
}

}  // namespace

absl::Status CheckVersion(sqlite3* db) {
  ASSIGN_OR_RETURN(const int version, VersionOf(db));
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
                     "(docs/upgrade.md)"));
  }
  return absl::OkStatus();
}

absl::Status Migrate(sqlite3* db) {
  ASSIGN_OR_RETURN(int version, VersionOf(db));
  if (version == kSchemaVersion) return absl::OkStatus();
  std::string sql;
  if (version == 0) {
    sql = kBaseline;
    version = kBaselineVersion;
  }
  for (; version < kSchemaVersion; ++version) sql += kMigrations[version - kBaselineVersion];
  const std::string all =
      absl::StrCat("BEGIN IMMEDIATE;", sql, "PRAGMA user_version=", kSchemaVersion, ";COMMIT;");
  // The text of the migrations would hide the cause of the error.
  if (sqlite3_exec(db, all.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) {
    return absl::OkStatus();
  }
  return SqliteError(db, absl::StrCat("migration to schema version ", kSchemaVersion));
}

}  // namespace muster::store
