// The folder of a job's event files, on a file system that may vanish and come back.
#ifndef MUSTER_WORKER_TENSORBOARD_FOLDER_H_
#define MUSTER_WORKER_TENSORBOARD_FOLDER_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace muster::tensorboard {

// DIRECTORY/JOB.
std::string FolderOf(const std::string& directory, const std::string& job);

// Makes the folder of a job, before its first session. FAILED_PRECONDITION: no session will be able
// to write there, because a file is in its place, or because it is not allowed; the message says
// what to do. Other codes: the file system has trouble, which may end.
absl::Status Prepare(const std::string& directory, const std::string& job);

// Threading: one thread.
class Folder {
 public:
  Folder(std::string directory, const std::string& job)
      : directory_(std::move(directory)), path_(FolderOf(directory_, job)) {}

  const std::string& path() const { return path_; }

  // Makes the folder if it is missing. `newest`: the path of the newest file that this session has
  // written; empty: none. UNAVAILABLE: since then the file and the directory were replaced. So a
  // file system is not mounted any more, and a folder that would be made now would be hidden once
  // it is mounted again.
  absl::Status Ensure(const std::string& newest);

 private:
  const std::string directory_;
  const std::string path_;
  std::optional<std::pair<dev_t, ino_t>> seen_;  // the directory
};

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_FOLDER_H_
