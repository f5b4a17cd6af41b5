// The making of a database's tables, and the migration of a database of the version before.
#ifndef MUSTER_COORDINATOR_STORE_MIGRATION_H_
#define MUSTER_COORDINATOR_STORE_MIGRATION_H_

#include "absl/status/status.h"
#include "coordinator/store/database.h"

namespace muster::store {

// FAILED_PRECONDITION if a newer musterd wrote the file, or if the file is older than the version
// before this one. Changes nothing. Other errors: those of SqliteError (statement.h).
absl::Status CheckVersion(Database* db);

// Makes all tables in a file without tables. In a file that passes CheckVersion, runs the missing
// migrations of schema.h in one transaction. So the file is unchanged after a crash or on a full
// disk. Errors: those of SqliteError.
absl::Status Migrate(Database* db);

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_MIGRATION_H_
