// Makes the tables of a database, and brings a database of the version before up to date.
#ifndef MUSTER_COORDINATOR_STORE_MIGRATION_H_
#define MUSTER_COORDINATOR_STORE_MIGRATION_H_

#include "absl/status/status.h"
#include "coordinator/store/database.h"

namespace muster::store {

// FAILED_PRECONDITION: a newer musterd wrote the file, or one that is older than the version before
// this one. Changes nothing. Otherwise the errors of SqliteError (statement.h).
absl::Status CheckVersion(Database* db);

// Gives a file without tables all of them. In a file that passes CheckVersion it runs the
// migrations of schema.h that the file has not had, in one transaction: after a crash or on a full
// disk the file is as before. Errors: those of SqliteError.
absl::Status Migrate(Database* db);

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_MIGRATION_H_
