// The event files of a folder, to which a session adds one more.
#ifndef MUSTER_WORKER_TENSORBOARD_EARLIER_FILES_H_
#define MUSTER_WORKER_TENSORBOARD_EARLIER_FILES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::tensorboard {

// The name of an event file. TensorBoard reads the files of a folder in the order of their names,
// so a later file needs a larger `number`; `writer` tells writers apart.
std::string FileName(int64_t number, const std::string& writer);

// The names of a folder's event files, in their order, without names whose number has more than 10
// digits. Errors: those of the file system; a folder that is missing has no files.
absl::StatusOr<std::vector<std::string>> EventFiles(const std::string& folder);

// The largest number in such names; 0: there are none.
int64_t LargestNumber(const std::vector<std::string>& names);

// What files have of the steps before and after one.
struct Numbers {
  // The newest step up to it with a number, in the newest file that has such a step.
  std::optional<int64_t> newest;
  // The tags of numbers of later steps, unless a START in a later file has taken them back.
  std::set<std::string> tags_after;
};

// The numbers up to `step`, and behind it. A damaged file is read up to the damage, as TensorBoard
// does. Only as many files are read, from the newest one on, as are needed.
Numbers NumbersAround(const std::string& folder, const std::vector<std::string>& names,
                      int64_t step);

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_EARLIER_FILES_H_
