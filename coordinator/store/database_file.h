// The file of the SQLite store: whether it is one of musterd's, and how a new one comes into being.
#ifndef MUSTER_COORDINATOR_STORE_DATABASE_FILE_H_
#define MUSTER_COORDINATOR_STORE_DATABASE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/store/database.h"

namespace muster::store {

// `PRAGMA application_id` of each new file. Those of older musterds have 0.
inline constexpr uint64_t kApplicationId = 0x4d555354;  // "MUST"

// Whether there is a file to be opened. False: nothing is there, not even its log, so a new store
// may be made. FAILED_PRECONDITION: it is empty, only its log is there, or it is no regular file;
// the message says what to do. Other codes: it is not known.
absl::StatusOr<bool> LooksLikeStore(const std::string& path);

// Makes `path`, which must be free, with all tables of the present schema; only its owner may read
// it. It gets its name when it is complete and durable: a musterd that is killed leaves no empty
// file. Errors: those of Migrate (migration.h) and of files.
absl::Status MakeDatabase(const std::string& path);

// FAILED_PRECONDITION: another program's file, or one without the tables of the store. Changes
// nothing. Other errors: those of SqliteError (statement.h).
absl::Status CheckIsOwn(Database* db);

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_DATABASE_FILE_H_
