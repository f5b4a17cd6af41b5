// The directory of a job's checkpoints: names, commit, renaming of damaged checkpoints, cleaning
// up. A directory step-N-gG is a complete checkpoint; a directory step-N-gG.tmp is incomplete.
#ifndef MUSTER_WORKER_CHECKPOINT_DIRECTORY_H_
#define MUSTER_WORKER_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/manifest/manifest.h"
#include "common/manifest/name.h"

namespace muster::checkpoint {

using manifest::FinalName;
using manifest::ParseFinalName;
using manifest::TemporaryName;

// Makes `temporary`, which contains all shards, synced, the checkpoint `final`. The order:
// manifest, fsync, fsync of the directory, rename, fsync of the parent. An error creates no
// `final`; the caller then removes `temporary` with RemoveDirectory. ALREADY_EXISTS if there is a
// `final`.
absl::Status Commit(const std::string& temporary, const std::string& final,
                    const manifest::Manifest& manifest, files::Disk& disk = files::Disk::Real());

// Renames a broken checkpoint to "<path>.bad" ("<path>.bad.2", ... when taken), and returns the new
// path.
absl::StatusOr<std::string> SetAside(const std::string& path);

// The names of complete checkpoints in the directory; none if the directory does not exist.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& directory);

// Removes a whole checkpoint. The checkpoint is renamed to "<path>.tmp" first, so that a kill
// during the removal leaves nothing that looks complete. OK if there is none.
absl::Status RemoveCheckpoint(const std::string& path);

// Removes a directory with all its contents. OK if there is none.
absl::Status RemoveDirectory(const std::string& path);

// Removes the unfinished work of generations up to `generation`: step-N-gG.tmp and nonce files.
// Whole checkpoints, .bad checkpoints, and files and names of any other shape stay. Returns the
// removed names. Must not be called while a process writes there.
absl::StatusOr<std::vector<std::string>> RemoveLeftovers(const std::string& directory,
                                                         int64_t generation);

// The nonce file proves that processes see the same directory. The first process writes the file
// (and makes the directory), the others look for the file, and the first removes it.
absl::Status WriteNonce(const std::string& directory, uint64_t nonce);
// NOT_FOUND, or FAILED_PRECONDITION if the file holds another nonce.
absl::Status CheckNonce(const std::string& directory, uint64_t nonce);
void RemoveNonce(const std::string& directory, uint64_t nonce);

// Whole checkpoints in a job's folder that the coordinator does not name. Either their process
// ended before it reported them, or the coordinator's database was restored and lacks its newest
// rows. They are never removed.

// Names of directories in the folder.
struct KnownCheckpoints {
  // Checkpoints that count.
  std::vector<std::string> recorded;
  // Checkpoints that no longer count.
  std::vector<std::string> retired;
};

struct FoundCheckpoint {
  std::string name;
  int64_t step = 0;
  int64_t generation = 0;
  int64_t last_command = 0;
  // The reason why the checkpoint does not continue the training of this job. Empty: its name and
  // its manifest allow it; its files are not verified yet.
  std::string reason;
};

// Finds the unknown checkpoints in the folder of the job `job` and `instance`, ordered by
// generation and step. `generation`: the generation of the caller. A checkpoint continues the
// training if all this is true:
// - it belongs to this job and to an earlier generation;
// - it is newer than all recorded checkpoints;
// - no later generation continued from an earlier step.
absl::StatusOr<std::vector<FoundCheckpoint>> FindUnknown(const std::string& folder,
                                                         const KnownCheckpoints& known,
                                                         const std::string& job,
                                                         const std::string& instance,
                                                         int64_t generation);

// Adds the reasons that follow from names, steps and generations alone. `found`: the result of
// reading the manifests, ordered by generation and step, with the reasons that follow from the
// manifests. Pure.
void Judge(const std::vector<std::string>& recorded, int64_t generation,
           std::vector<FoundCheckpoint>* found);

// The order in which checkpoints were written: by generation, then by step.
bool WrittenBefore(const std::string& a, const std::string& b);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_DIRECTORY_H_
