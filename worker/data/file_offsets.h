// Which file of a list contains a sample, if the samples of the files follow one another.
#ifndef MUSTER_WORKER_DATA_FILE_OFFSETS_H_
#define MUSTER_WORKER_DATA_FILE_OFFSETS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace muster::data {

class FileOffsets {
 public:
  struct Place {
    size_t file = 0;
    int64_t within = 0;
  };

  // Adds the next file.
  void Append(int64_t samples) { ends_.push_back(size() + samples); }

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // OUT_OF_RANGE for a sample outside [0, size).
  absl::StatusOr<Place> Find(int64_t sample) const {
    if (sample < 0 || sample >= size()) {
      return absl::OutOfRangeError(absl::StrCat("sample ", sample, ": expected one of ", size()));
    }
    const size_t file = std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
    return Place{file, sample - (file == 0 ? 0 : ends_[file - 1])};
  }

 private:
  std::vector<int64_t> ends_;  // samples in the files up to and with this one
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_FILE_OFFSETS_H_
