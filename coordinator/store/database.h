// An open SQLite file with its compiled statements. Not thread-safe.
#ifndef MUSTER_COORDINATOR_STORE_DATABASE_H_
#define MUSTER_COORDINATOR_STORE_DATABASE_H_

#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status.h"
#include "coordinator/store/columns.h"
#include "coordinator/store/statement.h"

namespace muster::store {

class Database {
 public:
  Database() = default;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database() { Close(); }

  // Opens an existing file for reading and writing. Errors: those of SqliteError.
  absl::Status Open(const std::string& path) {
    constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path.c_str(), &db_, kFlags, nullptr) != SQLITE_OK) {
      return SqliteError(db_, "open");
    }
    // A wait for locks of people who read the file with the sqlite3 tool.
    sqlite3_busy_timeout(db_, 5000);
    return absl::OkStatus();
  }
  void Close() {
    for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
    statements_.clear();
    sqlite3_close(db_);
    db_ = nullptr;
  }
  sqlite3* get() const { return db_; }

  // ---- Statements. Each question mark in the SQL text stands for one of `values`, in their order.
  Statement Prepare(const std::string& sql) { return Statement(db_, &statements_, sql); }
  // Runs a statement without result rows.
  template <typename... Values>
  absl::Status Run(const std::string& sql, const Values&... values) {
    Statement statement = Prepare(sql);
    (statement.Bind(values), ...);
    return statement.Run();
  }
  // Returns the number in the first column of the first row; 0 if there is no row or the column is
  // null.
  template <typename... Values>
  absl::StatusOr<uint64_t> Number(const std::string& sql, const Values&... values) {
    Statement statement = Prepare(sql);
    (statement.Bind(values), ...);
    const uint64_t number = statement.Next() && !statement.SkipNull() ? statement.Uint() : 0;
    RETURN_IF_ERROR(statement.status());
    return number;
  }

  // ---- Rows of a table of tables.h.
  // Writes a row, and replaces the row with the same key.
  template <typename Table, typename... Values>
  absl::Status Put(const Values&... values) {
    static const auto* const kSql = new std::string([] {
      const std::vector<std::string> names = ColumnNamesOf<Table>();
      const std::vector<std::string> marks(names.size(), "?");
      return absl::StrCat("REPLACE INTO ", Table::kName, " (", absl::StrJoin(names, ","),
                          ") VALUES (", absl::StrJoin(marks, ","), ")");
    }());
    Statement statement = Prepare(*kSql);
    ColumnWriter writer(&statement);
    Table::Columns(writer, values...);
    return statement.Run();
  }
  // Calls `take` with the values of each row. `which`: the SQL text after the table's name.
  template <typename Table, typename Take, typename... Values>
  absl::Status Each(const std::string& which, const Take& take, const Values&... values) {
    Statement statement = Prepare(absl::StrCat(
        "SELECT ", absl::StrJoin(ColumnNamesOf<Table>(), ","), " FROM ", Table::kName, " ", which));
    (statement.Bind(values), ...);
    while (statement.Next()) {
      typename Table::Row row;
      ColumnReader reader(&statement);
      std::apply([&reader](auto&... columns) { Table::Columns(reader, columns...); }, row);
      std::apply(take, std::move(row));
    }
    return statement.status();
  }

 private:
  sqlite3* db_ = nullptr;
  StatementCache statements_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_DATABASE_H_
