// The file of the SQLite store: the check that musterd made it, and the making of a new file.
#ifndef MUSTER_COORDINATOR_STORE_DATABASE_FILE_H_
#define MUSTER_COORDINATOR_STORE_DATABASE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/store/database.h"

namespace muster::store {

// `PRAGMA application_id` of each new file. Files of older musterds have 0.
inline constexpr uint64_t kApplicationId = 0x4d555354;  // "MUST"

// Returns whether there is a file to open. False if neither the file nor its log exists, so that a
// new store may be made. FAILED_PRECONDITION if the file is empty, if only its log exists, or if it
// is no regular file; the message says what to do. Any other code means that the answer is not
// known.
absl::StatusOr<bool> LooksLikeStore(const std::string& path);

// Makes `path`, which must not exist, with all tables of the newest schema. Only its owner may read
// it. The file gets its name when it is complete and durable, so a killed musterd leaves no empty
// file. Errors: those of Migrate (migration.h) and of files.
absl::Status MakeDatabase(const std::string& path);

// FAILED_PRECONDITION if the file is another program's, or lacks the tables of the store. Changes
// nothing. Other errors: those of SqliteError (statement.h).
absl::Status CheckIsOwn(Database* db);

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_DATABASE_FILE_H_
