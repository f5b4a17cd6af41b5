// What the event files of a job's earlier sessions hold, for a session that continues them.
#ifndef MUSTER_WORKER_TENSORBOARD_HISTORY_H_
#define MUSTER_WORKER_TENSORBOARD_HISTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/tensorboard/entry.h"

namespace muster::tensorboard {

// The name of an event file. TensorBoard reads the files of a folder in the order of their names,
// so a later file needs a larger `number`; `writer` tells writers apart.
std::string FileName(int64_t number, const std::string& writer);

// The largest number of the event files in a folder; 0: there are none, or no folder.
absl::StatusOr<int64_t> LargestNumber(const std::string& folder);

struct History {
  // The entries of `step`, as a reader of all files would have them, but without later steps.
  std::vector<Entry> at_step;
  // The newest step up to `step` of which the files hold something.
  std::optional<int64_t> newest;
};

// A file begins with a START, and holds everything from there to its end. So only the newest one
// that begins at `step` or before is read to its end. A file that is damaged is read up to the
// damage, as TensorBoard does.
absl::StatusOr<History> ReadHistory(const std::string& folder, int64_t step);

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_HISTORY_H_
