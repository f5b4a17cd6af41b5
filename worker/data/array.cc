#include "worker/data/array.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/data/scans.h"

namespace muster::data {

absl::Status Array::CheckNotShrunk() const {
  return mapped == nullptr ? absl::OkStatus() : mapped->CheckNotShrunk();
}

std::string ShapeString(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string Describe(const Array& array) {
  return absl::StrCat(Name(array.type), " ", ShapeString(array.shape));
}

absl::Status Wrong(const Array& array, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(array.path, ": ", array.name, ": ", what));
}

absl::Status WrongElement(const Array& array, int64_t row, int64_t within,
                          const std::string& what) {
  const int64_t at = array.offset + OffsetOf(array, row, within);
  return Wrong(array, absl::StrCat("row ", row, ", byte offset ", at, ": ", what));
}

void NoteCast(const Array& array, ElementType read, Notes* notes) {
  if (array.type != read && array.type != ElementType::kUint8) {
    notes->Add(Note::Kind::kCast,
               absl::StrCat(array.name, ": ", Name(array.type), " is read as ", Name(read)),
               array.path);
  }
  if (array.order == ElementOrder::kFortran && array.shape.size() > 1) {
    notes->Add(Note::Kind::kCast,
               absl::StrCat(array.name,
                            ": in Fortran order, so the numbers of a row lie far apart; "
                            "numpy.ascontiguousarray makes files that are read faster"),
               array.path);
  }
}

absl::Status ReadNumbers(const Array& array, int64_t row, float* out) {
  CopyRow(array, row, out);
  const auto wrong = FirstNotFinite(out, array.row_elements());
  if (!wrong.has_value()) return absl::OkStatus();
  const double found = NumberAt(array, OffsetOf(array, row, *wrong));
  return WrongElement(
      array, row, *wrong,
      absl::StrCat("expected ",
                   std::isfinite(found) ? "numbers that float32 can hold" : "finite numbers",
                   ", found ", found));
}

}  // namespace muster::data
