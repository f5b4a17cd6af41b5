#include "coordinator/store/statement.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace muster::store {

absl::Status SqliteError(sqlite3* db, const std::string& doing) {
  const std::string message = absl::StrCat(doing, ": ", sqlite3_errmsg(db));
  // Some calls of SQLite return an I/O error for a full disk.
  const int system = sqlite3_system_errno(db);
  const bool io = (sqlite3_errcode(db) & 0xff) == SQLITE_IOERR;
  if (io && (system == ENOSPC || system == EDQUOT)) {
    return absl::ResourceExhaustedError(absl::StrCat(message, ": ", strerror(system)));
  }
  switch (sqlite3_errcode(db) & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status Execute(sqlite3* db, const std::string& sql) {
  if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) {
    return absl::OkStatus();
  }
  return SqliteError(db, sql);
}

Statement::Statement(sqlite3* db, StatementCache* cache, const std::string& sql)
    : db_(db), sql_(sql) {
  sqlite3_stmt*& cached = (*cache)[sql];
  if (cached == nullptr) {
    Check(sqlite3_prepare_v3(db, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &cached, nullptr));
  }
  statement_ = cached;
}

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Statement::Check(int code) {
  if (code != SQLITE_OK && status_.ok()) status_ = SqliteError(db_, sql_);
}

Statement& Statement::BindNumber(int64_t value) {
  if (status_.ok()) Check(sqlite3_bind_int64(statement_, parameter_++, value));
  return *this;
}

Statement& Statement::Bind(const std::string& value) {
  if (status_.ok()) {
    Check(sqlite3_bind_text64(statement_, parameter_++, value.data(), value.size(),
                              SQLITE_TRANSIENT, SQLITE_UTF8));
  }
  return *this;
}

Statement& Statement::BindBlob(const std::string& value) {
  if (status_.ok()) {
    Check(sqlite3_bind_blob64(statement_, parameter_++, value.data(), value.size(),
                              SQLITE_TRANSIENT));
  }
  return *this;
}

Statement& Statement::Bind(absl::Time value) {
  return value == absl::InfinitePast() ? BindNull() : Bind(absl::ToUnixMicros(value));
}

Statement& Statement::BindNull() {
  if (status_.ok()) Check(sqlite3_bind_null(statement_, parameter_++));
  return *this;
}

absl::Status Statement::Run() {
  while (Next()) {
  }
  return status_;
}

bool Statement::Next() {
  if (!status_.ok()) return false;
  column_ = 0;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) status_ = SqliteError(db_, sql_);
  return false;
}

std::string Statement::Text() {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column_));
  const int size = sqlite3_column_bytes(statement_, column_++);
  return bytes == nullptr ? std::string() : std::string(bytes, size);
}

bool Statement::SkipNull() {
  if (!NextIsNull()) return false;
  ++column_;
  return true;
}

}  // namespace muster::store
