// A folder that is written under a temporary name, and gets its own name when complete.
#ifndef MUSTER_CLIENT_CHECKPOINTS_NEW_FOLDER_H_
#define MUSTER_CLIENT_CHECKPOINTS_NEW_FOLDER_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace muster::checkpoints {

// The temporary folder is ".NAME.muster.tmp" beside the final folder, and is locked while a process
// writes it. The next writer of the same folder removes what a killed process left. Movable.
// Threading: one thread.
class NewFolder {
 public:
  // Makes the temporary folder, and the folders above it. FAILED_PRECONDITION: another process
  // writes the temporary folder.
  static absl::StatusOr<NewFolder> Create(const std::string& path);
  // Removes the temporary folder, unless it was renamed.
  ~NewFolder();
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;

  // The folder in which to write the files. The caller renames it at the end.
  const std::string& temporary() const { return temporary_; }

 private:
  NewFolder(std::string temporary, int lock) : temporary_(std::move(temporary)), lock_(lock) {}

  std::string temporary_;
  int lock_;  // -1: it was moved from
};

}  // namespace muster::checkpoints

#endif  // MUSTER_CLIENT_CHECKPOINTS_NEW_FOLDER_H_
