// The event files of a folder, to which a session adds one more.
#ifndef MUSTER_WORKER_TENSORBOARD_EARLIER_FILES_H_
#define MUSTER_WORKER_TENSORBOARD_EARLIER_FILES_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"

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

// One event file: begun as a whole, then appended to.
//
// Threading: one thread at a time. After an error the object must not be used any more: what was
// not synced may be lost, and a new file is needed.
class EventFile {
 public:
  // Creates a file with these contents: afterwards it is durable and there as a whole, or not there
  // at all. One writer per folder at a time. The disk outlives it.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& path,
                                                           const std::string& contents,
                                                           files::Disk& disk);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }

  // After an error of Append, the file ends as before the call, if the file system allows this.
  // Errors: those of the disk; NOT_FOUND if the path no longer leads to this file, because it was
  // removed, or its file system is not mounted any more.
  absl::Status Append(const std::string& bytes);
  absl::Status Sync();

 private:
  EventFile(std::string path, int fd, files::Disk& disk);
  absl::Status CheckThere() const;

  const std::string path_;
  const int fd_;
  size_t size_ = 0;
  files::Disk& disk_;
};

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_EARLIER_FILES_H_
