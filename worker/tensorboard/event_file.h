// One event file: begun as a whole, then appended to.
#ifndef MUSTER_WORKER_TENSORBOARD_EVENT_FILE_H_
#define MUSTER_WORKER_TENSORBOARD_EVENT_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"

namespace muster::tensorboard {

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

#endif  // MUSTER_WORKER_TENSORBOARD_EVENT_FILE_H_
