// The places of the elements (samples, or tokens) of several files that follow one another. The
// elements are numbered from 0.
#ifndef MUSTER_WORKER_DATA_FILE_OFFSETS_H_
#define MUSTER_WORKER_DATA_FILE_OFFSETS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker/data/part.h"

namespace muster::data {

class FileOffsets {
 public:
  struct Place {
    size_t file = 0;
    int64_t within = 0;
  };

  // Elements `begin` up to `end` of one file.
  struct Range {
    size_t file = 0;
    int64_t begin = 0;
    int64_t end = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  // Adds the next file.
  void Append(int64_t elements) { ends_.push_back(size() + elements); }

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // OUT_OF_RANGE for a sample outside [0, size).
  absl::StatusOr<Place> Find(int64_t sample) const {
    if (sample < 0 || sample >= size()) {
      return absl::OutOfRangeError(absl::StrCat("sample ", sample, ": expected one of ", size()));
    }
    const size_t file = std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
    return Place{file, sample - BeginOf(file)};
  }

  // Returns the ranges of this part of all elements, one for each file, in order. Files without
  // such elements are left out.
  std::vector<Range> Of(const Part& part) const {
    const int64_t begin = part.Begin(size());
    const int64_t end = part.End(size());
    std::vector<Range> ranges;
    for (size_t file = 0; file < ends_.size(); ++file) {
      const int64_t before = BeginOf(file);
      const Range range{file, std::max(begin, before) - before,
                        std::min(end, ends_[file]) - before};
      if (range.begin < range.end) ranges.push_back(range);
    }
    return ranges;
  }

 private:
  int64_t BeginOf(size_t file) const { return file == 0 ? 0 : ends_[file - 1]; }

  std::vector<int64_t> ends_;  // elements in the files up to and with this one
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_FILE_OFFSETS_H_
