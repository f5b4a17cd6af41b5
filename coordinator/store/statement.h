// One run of a SQLite statement: values bound in order, rows read in order. The statement stays
// compiled.
#ifndef MUSTER_COORDINATOR_STORE_STATEMENT_H_
#define MUSTER_COORDINATOR_STORE_STATEMENT_H_

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace muster::store {

// The error of the last call on `db`, by its kind.
absl::Status SqliteError(sqlite3* db, const std::string& doing);

class Statement {
 public:
  // `cache` keeps the compiled statement and outlives this object.
  Statement(sqlite3* db, std::map<std::string, sqlite3_stmt*>* cache, const std::string& sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // ---- In the order of the question marks.
  Statement& Bind(uint64_t value);
  Statement& Bind(int64_t value);
  Statement& Bind(uint32_t value) { return Bind(static_cast<uint64_t>(value)); }
  Statement& Bind(int value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(bool value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(double value);
  Statement& Bind(const std::string& value);
  // Serialized bytes.
  Statement& BindBlob(const std::string& value);
  // Microseconds since 1970; null for the infinite past.
  Statement& Bind(absl::Time value);
  template <typename T>
  Statement& Bind(const std::optional<T>& value) {
    return value.has_value() ? Bind(*value) : BindNull();
  }
  Statement& BindNull();

  // Runs a statement without rows.
  absl::Status Run();
  // True on a row; false at the end or on an error, which status() tells apart.
  bool Next();
  absl::Status status() const { return status_; }

  // ---- Columns of the row, from left to right.
  uint64_t Uint() { return static_cast<uint64_t>(sqlite3_column_int64(statement_, column_++)); }
  int64_t Int() { return sqlite3_column_int64(statement_, column_++); }
  bool Bool() { return Int() != 0; }
  double Double() { return sqlite3_column_double(statement_, column_++); }
  std::string Text();
  absl::Time Time();
  // Whether the next column is null; then it is skipped.
  bool SkipNull();
  std::optional<double> OptionalDouble();

 private:
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
