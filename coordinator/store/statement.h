// One run of a SQLite statement: values are bound in order, and rows are read in order. The cache
// keeps the statement compiled.
#ifndef MUSTER_COORDINATOR_STORE_STATEMENT_H_
#define MUSTER_COORDINATOR_STORE_STATEMENT_H_

#include <sqlite3.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace muster::store {

// Returns the error of the last call on `db`, with the absl code that fits it.
absl::Status SqliteError(sqlite3* db, const std::string& doing);

// Runs SQL text without result rows.
absl::Status Execute(sqlite3* db, const std::string& sql);

// Compiled statements, by their text.
using StatementCache = std::map<std::string, sqlite3_stmt*>;

class Statement {
 public:
  // `cache` keeps the compiled statement and outlives this object.
  Statement(sqlite3* db, StatementCache* cache, const std::string& sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // ---- Values, in the order of the question marks.
  // Binds a number. SQLite's numbers have 64 bits: a larger uint64_t is stored as a negative
  // number.
  template <std::integral T>
  Statement& Bind(T value) {
    return BindNumber(static_cast<int64_t>(value));
  }
  Statement& Bind(const std::string& value);
  // Binds serialized bytes.
  Statement& BindBlob(const std::string& value);
  // Binds a time as microseconds since 1970; the infinite past as null.
  Statement& Bind(absl::Time value);
  template <typename T>
  Statement& Bind(const std::optional<T>& value) {
    return value.has_value() ? Bind(*value) : BindNull();
  }
  Statement& BindNull();

  // Runs a statement without rows.
  absl::Status Run();
  // Moves to the next row. False at the end or on an error; status() tells which.
  bool Next();
  absl::Status status() const { return status_; }

  // ---- Columns of the row, from left to right.
  uint64_t Uint() { return static_cast<uint64_t>(sqlite3_column_int64(statement_, column_++)); }
  int64_t Int() { return sqlite3_column_int64(statement_, column_++); }
  std::string Text();
  // Returns whether the next column is null.
  bool NextIsNull() const { return sqlite3_column_type(statement_, column_) == SQLITE_NULL; }
  // Returns whether the next column is null, and skips a null column.
  bool SkipNull();
  template <std::integral T>
  void Read(T* value) {
    *value = static_cast<T>(Int());
  }
  void Read(std::string* value) { *value = Text(); }
  // Reads a time; null is the infinite past.
  void Read(absl::Time* value) {
    *value = SkipNull() ? absl::InfinitePast() : absl::FromUnixMicros(Int());
  }
  template <typename T>
  void Read(std::optional<T>* value) {
    if (SkipNull()) {
      value->reset();
    } else {
      Read(&value->emplace());
    }
  }

 private:
  Statement& BindNumber(int64_t value);
  void Check(int code);

  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  const std::string sql_;
  int parameter_ = 1;
  int column_ = 0;
  absl::Status status_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_STATEMENT_H_
