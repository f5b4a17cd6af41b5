// A folder that is written under a temporary name and appears under its own name when it is
// complete.
#ifndef MUSTER_CLIENT_CHECKPOINTS_NEW_FOLDER_H_
#define MUSTER_CLIENT_CHECKPOINTS_NEW_FOLDER_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace muster::checkpoints {

// The temporary folder is ".NAME.muster.tmp" beside the final one, and it is locked while a process
// writes it. So what a killed process left is removed by the next one that writes the same folder.
// Movable. Threading: one thread.
class NewFolder {
 public:
  // Makes the temporary folder, and the folders above it. FAILED_PRECONDITION: another process is
  // writing it.
  static absl::StatusOr<NewFolder> Create(const std::string& path);
  // Removes the temporary folder, if it still has this name.
  ~NewFolder();
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;

  // Where to write the files; the caller renames it.
  const std::string& temporary() const { return temporary_; }

 private:
  NewFolder(std::string temporary, int lock) : temporary_(std::move(temporary)), lock_(lock) {}

  std::string temporary_;
  int lock_;  // -1: it was moved from
};

}  // namespace muster::checkpoints

#endif  // MUSTER_CLIENT_CHECKPOINTS_NEW_FOLDER_H_
