// Writes a checkpoint anew with another number of files.
#ifndef MUSTER_CLIENT_CHECKPOINTS_RESHARD_H_
#define MUSTER_CLIENT_CHECKPOINTS_RESHARD_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"

namespace muster::checkpoints {

// Reads and checks the checkpoint `directory`, and writes the checkpoint `out` (absolute) in the
// newest version of the format. `out` has `files` files of nearly equal size (1 to 65536), and the
// same other contents. Returns the manifest of `out`. Needs memory for a few blocks.
// ALREADY_EXISTS: `out` exists and is not an empty folder. After an error there is no new
// checkpoint.
absl::StatusOr<manifest::Manifest> Reshard(const std::string& directory, const std::string& out,
                                           int files);

}  // namespace muster::checkpoints

#endif  // MUSTER_CLIENT_CHECKPOINTS_RESHARD_H_
