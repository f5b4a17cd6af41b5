// The folder of a job's event files, and the files in it, to which a session adds a file. The file
// system may vanish and come back.
#ifndef MUSTER_WORKER_TENSORBOARD_FOLDER_H_
#define MUSTER_WORKER_TENSORBOARD_FOLDER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"

namespace muster::tensorboard {

// Returns DIRECTORY/JOB.
std::string FolderOf(const std::string& directory, const std::string& job);

// Makes the folder of a job, before its first session. FAILED_PRECONDITION: no session can write
// there, because a file is in the folder's place, or permission is missing; the message says what
// to do. Other codes: the file system has trouble, which may end.
absl::Status Prepare(const std::string& directory, const std::string& job);

// The identity of a directory to which a path led.
struct Place {
  using Id = std::pair<dev_t, ino_t>;
  Id directory;
  bool mounted = false;     // the directory is the root of a mounted file system
  std::string parent_path;  // of the parent directory, without symbolic links
  Id parent;
};
// Errors: those of the file system; NOT_FOUND: there is no such directory.
absl::StatusOr<Place> PlaceOf(const std::string& directory);

// Threading: one thread.
class Folder {
 public:
  Folder(std::string directory, const std::string& job)
      : directory_(std::move(directory)), path_(FolderOf(directory_, job)) {}

  const std::string& path() const { return path_; }

  // Makes the folder if it is missing, also after somebody has removed or replaced the directory.
  // `newest`: the path of the newest file of this session; empty: none. UNAVAILABLE: file and
  // directory are gone, and the file system may not be mounted any more. A new folder would then be
  // hidden after the next mount. The sign: the directory was the root of a mounted file system, or
  // its parent directory is another one than before.
  absl::Status Ensure(const std::string& newest);

 private:
  const std::string directory_;
  const std::string path_;
  std::optional<Place> seen_;  // the directory
};

// The name of an event file. TensorBoard reads the files of a folder in the order of their names,
// so a later file needs a larger `number`; `writer` tells writers apart.
std::string FileName(int64_t number, const std::string& writer);

// Returns the names of a folder's event files, in their order, without names whose number has more
// than 10 digits. A missing folder has no files. Errors: those of the file system.
absl::StatusOr<std::vector<std::string>> EventFiles(const std::string& folder);

// Returns the largest number in such names; 0: there are no names.
int64_t LargestNumber(const std::vector<std::string>& names);

// The numbers in files before and after a step.
struct Numbers {
  // The newest step, up to this step, with a number, in the newest file that has such a step.
  std::optional<int64_t> newest;
  // The tags of numbers of later steps, except numbers that a START in a later file has taken back.
  std::set<std::string> tags_after;
};

// Returns the numbers up to `step`, and after `step`. A damaged file is read up to the damage, as
// TensorBoard does. Files are read from the newest one on, and only as many as needed.
Numbers NumbersAround(const std::string& folder, const std::vector<std::string>& names,
                      int64_t step);

// An event file: created as a whole, then appended to.
//
// Threading: one thread at a time. After an error the object must not be used any more: unsynced
// data may be lost, and a new file is needed.
class EventFile {
 public:
  // Creates a file with these contents. Afterwards the file is complete and durable, or does not
  // exist. One writer per folder at a time. The disk outlives the file.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& path,
                                                           const std::string& contents,
                                                           files::Disk& disk);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Appends the bytes. After an error, the file ends as before the call, if the file system allows
  // this. Errors: those of the disk; NOT_FOUND if the path no longer leads to this file (removed,
  // or its file system is not mounted).
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

#endif  // MUSTER_WORKER_TENSORBOARD_FOLDER_H_
