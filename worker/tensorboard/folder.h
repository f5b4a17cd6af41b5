// The folder of a job's event files, on a file system that may vanish and come back.
#ifndef MUSTER_WORKER_TENSORBOARD_FOLDER_H_
#define MUSTER_WORKER_TENSORBOARD_FOLDER_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::tensorboard {

// DIRECTORY/JOB.
std::string FolderOf(const std::string& directory, const std::string& job);

// Makes the folder of a job, before its first session. FAILED_PRECONDITION: no session will be able
// to write there, because a file is in its place, or because it is not allowed; the message says
// what to do. Other codes: the file system has trouble, which may end.
absl::Status Prepare(const std::string& directory, const std::string& job);

// Which directory a path led to.
struct Place {
  using Id = std::pair<dev_t, ino_t>;
  Id directory;
  bool mounted = false;     // it is the root of a file system that is mounted there
  std::string parent_path;  // of the directory in which it lies, without symbolic links
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

  // Makes the folder if it is missing, also after somebody has removed the directory, or replaced
  // it. `newest`: the path of the newest file that this session has written; empty: none.
  // UNAVAILABLE: file and directory are not there any more, and the directory was the root of a
  // mounted file system, or the one in which it lay is another one now. So a file system may not be
  // mounted any more, and a folder that would be made now would be hidden once it is mounted again.
  absl::Status Ensure(const std::string& newest);

 private:
  const std::string directory_;
  const std::string path_;
  std::optional<Place> seen_;  // the directory
};

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_FOLDER_H_
