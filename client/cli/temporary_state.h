// The state directory of a `muster run` without --state: made under $TMPDIR, and removed after the
// run. The directory of a killed run is removed by the next run. The coordinator's socket is always
// in it, so that it goes with it.
#ifndef MUSTER_CLIENT_CLI_TEMPORARY_STATE_H_
#define MUSTER_CLIENT_CLI_TEMPORARY_STATE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/process/fd.h"

namespace muster::cli {

// A directory ROOT/muster-run-XXXXXX (mode 0700) with a file `owner` that is locked while this
// object lives: the kernel frees the lock of a process that is killed. Where the path of a socket
// in it would be too long, it is made in /tmp instead of ROOT.
class TemporaryState {
 public:
  // First removes the directories of killed runs: directories of this user with such a name in
  // which neither `owner` nor musterd's own `lock` is locked. INTERNAL: the directory cannot be
  // made.
  static absl::StatusOr<std::unique_ptr<TemporaryState>> Create(const std::string& root);
  // Removes it.
  ~TemporaryState();

  const std::string& path() const { return path_; }

 private:
  TemporaryState(std::string path, process::Fd owner)
      : path_(std::move(path)), owner_(std::move(owner)) {}

  const std::string path_;
  const process::Fd owner_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TEMPORARY_STATE_H_
