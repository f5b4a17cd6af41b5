// Reading and writing of rows by the names of their columns. A table (tables.h) lists its columns
// in one place:
//
//   struct RanksTable {
//     static constexpr char kName[] = "ranks";
//     using Row = std::tuple<std::string, uint32_t, jobs::Rank>;
//     static void Columns(auto& column, auto& job_id, auto& number, auto& rank) {
//       column("job_id", job_id);
//       ...
//     }
//   };
//
// The same list gives the names in the SQL text, binds the values of a row and reads them back. So
// a value cannot get into another column. The order of the columns in the file does not matter.
#ifndef MUSTER_COORDINATOR_STORE_COLUMNS_H_
#define MUSTER_COORDINATOR_STORE_COLUMNS_H_

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "coordinator/store/statement.h"

namespace muster::store {

// ---- The description of a column, besides its name.

// A column of bytes, not text. `value`: a std::string.
template <typename T>
struct Blob {
  T& value;
};
template <typename T>
Blob(T&) -> Blob<T>;

// A duration as a whole number of `unit`s. `value`: an absl::Duration, null if it is infinite, or
// an optional one.
template <typename T>
struct Units {
  T& value;
  absl::Duration unit;
};
template <typename T>
Units(T&, absl::Duration) -> Units<T>;

// A list of texts that do not contain the separator.
template <typename T>
struct Joined {
  T& value;
  char separator;
};
template <typename T>
Joined(T&, char) -> Joined<T>;

// ---- Visitors.

class ColumnNames {
 public:
  template <typename T>
  void operator()(const char* name, T&&) {
    names_.push_back(name);
  }
  // Visits the columns of a value that may be absent. If the value is absent, all its columns are
  // null; otherwise the first column is never null.
  template <typename T, typename Columns>
  void Optional(std::optional<T>&, Columns columns) {
    T value;
    columns(*this, value);
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// Returns the number of columns of a value that may be absent.
template <typename T, typename Columns>
size_t CountColumns(Columns columns) {
  ColumnNames names;
  T value;
  columns(names, value);
  return names.names().size();
}

class ColumnWriter {
 public:
  explicit ColumnWriter(Statement* statement) : statement_(*statement) {}

  template <typename T>
  void operator()(const char*, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      statement_.Bind(static_cast<int>(value));
    } else {
      statement_.Bind(value);
    }
  }
  template <typename T>
  void operator()(const char*, Blob<T> blob) {
    statement_.BindBlob(blob.value);
  }
  template <typename T>
  void operator()(const char*, Units<T> units) {
    const std::optional<absl::Duration> value = units.value;
    if (!value.has_value() || *value == absl::InfiniteDuration()) {
      statement_.BindNull();
    } else {
      statement_.Bind(*value / units.unit);
    }
  }
  template <typename T>
  void operator()(const char*, Joined<T> list) {
    statement_.Bind(absl::StrJoin(list.value, std::string(1, list.separator)));
  }
  template <typename T, typename Columns>
  void Optional(const std::optional<T>& value, Columns columns) {
    if (value.has_value()) return columns(*this, *value);
    for (size_t i = CountColumns<T>(columns); i > 0; --i) statement_.BindNull();
  }

 private:
  Statement& statement_;
};

class ColumnReader {
 public:
  explicit ColumnReader(Statement* statement) : statement_(*statement) {}

  template <typename T>
  void operator()(const char*, T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(statement_.Int());
    } else {
      statement_.Read(&value);
    }
  }
  template <typename T>
  void operator()(const char*, Blob<T> blob) {
    blob.value = statement_.Text();
  }
  template <typename T>
  void operator()(const char*, Units<T> units) {
    if (!statement_.SkipNull()) units.value = statement_.Int() * units.unit;
  }
  template <typename T>
  void operator()(const char*, Joined<T> list) {
    list.value = absl::StrSplit(statement_.Text(), list.separator, absl::SkipEmpty());
  }
  template <typename T, typename Columns>
  void Optional(std::optional<T>& value, Columns columns) {
    if (!statement_.NextIsNull()) return columns(*this, value.emplace());
    for (size_t i = CountColumns<T>(columns); i > 0; --i) statement_.SkipNull();
  }

 private:
  Statement& statement_;
};

template <typename Table>
std::vector<std::string> ColumnNamesOf() {
  ColumnNames names;
  typename Table::Row row;
  std::apply([&names](auto&... values) { Table::Columns(names, values...); }, row);
  return names.names();
}

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_COLUMNS_H_
