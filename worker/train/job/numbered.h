// Lists of numbers in messages.
#ifndef MUSTER_WORKER_TRAIN_JOB_NUMBERED_H_
#define MUSTER_WORKER_TRAIN_JOB_NUMBERED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::train {

// Returns "rank 1", "ranks 0, 2", "ranks 0, 2, 3 and 5 more": at most three numbers.
inline std::string Numbered(const char* what, const std::vector<int64_t>& numbers) {
  constexpr size_t kShown = 3;
  std::string text = absl::StrCat(what, numbers.size() == 1 ? " " : "s ");
  for (size_t i = 0; i < numbers.size() && i < kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", numbers[i]);
  }
  if (numbers.size() > kShown) absl::StrAppend(&text, " and ", numbers.size() - kShown, " more");
  return text;
}

// Returns "samples 3, 7 of data.train".
inline std::string SamplesOf(const char* data, const std::vector<int64_t>& samples) {
  return absl::StrCat(Numbered("sample", samples), " of ", data);
}

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_JOB_NUMBERED_H_
