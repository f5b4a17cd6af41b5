// Several problems as one error: the first three and "and N more".
#ifndef MUSTER_COMMON_PROBLEMS_PROBLEMS_H_
#define MUSTER_COMMON_PROBLEMS_PROBLEMS_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster {

class Problems {
 public:
  static constexpr size_t kShown = 3;

  void Add(std::string problem) {
    if (++count_ <= kShown) absl::StrAppend(&text_, text_.empty() ? "" : "; ", problem);
  }

  size_t count() const { return count_; }

  // "a; b; c; and 4 more"; empty without a problem.
  std::string Text() const {
    return count_ <= kShown ? text_ : absl::StrCat(text_, "; and ", count_ - kShown, " more");
  }

  // OK without a problem, else `code` with "<context>: <text>".
  absl::Status ToStatus(absl::StatusCode code, const std::string& context) const {
    if (count_ == 0) return absl::OkStatus();
    return absl::Status(code, absl::StrCat(context, ": ", Text()));
  }

 private:
  size_t count_ = 0;
  std::string text_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_PROBLEMS_PROBLEMS_H_
