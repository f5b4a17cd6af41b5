#include "coordinator/store/database.h"

namespace muster::store {

absl::Status Database::Open(const std::string& path) {
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(path.c_str(), &db_, kFlags, nullptr) != SQLITE_OK) {
    return SqliteError(db_, "open");
  }
  // For people who read the file with the sqlite3 tool.
  sqlite3_busy_timeout(db_, 5000);
  return absl::OkStatus();
}

void Database::Close() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  statements_.clear();
  sqlite3_close(db_);
  db_ = nullptr;
}

}  // namespace muster::store
