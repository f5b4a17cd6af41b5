// Whole checkpoints in a job's folder that the coordinator does not name: the process that wrote
// one ended before it could report it, or the database of the coordinator was restored and lacks
// its newest rows. They are never removed.
#ifndef MUSTER_WORKER_CHECKPOINT_FOUND_H_
#define MUSTER_WORKER_CHECKPOINT_FOUND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::checkpoint {

// Names of directories in the folder.
struct Known {
  // Checkpoints that count.
  std::vector<std::string> recorded;
  // Checkpoints that do not count any more, and never will again.
  std::vector<std::string> retired;
};

struct Found {
  std::string name;
  int64_t step = 0;
  int64_t generation = 0;
  int64_t last_command = 0;
  // Why it does not continue the training of this job. Empty: according to its name and its
  // manifest it does, and its files are still to be verified.
  std::string reason;
};

// Looks through the folder of the job `job` and `instance`. `generation`: the generation of the
// caller. The result is ordered by generation and step. A checkpoint continues the training if it
// belongs to this job and to an earlier generation, is newer than all recorded checkpoints, and no
// later generation continued from an earlier step.
absl::StatusOr<std::vector<Found>> FindUnknown(const std::string& folder, const Known& known,
                                               const std::string& job, const std::string& instance,
                                               int64_t generation);

// Adds the reasons that follow from names, steps and generations alone. `found`: what FindUnknown
// has read, ordered by generation and step, each with the reason that follows from its manifest, if
// any. Pure.
void Judge(const std::vector<std::string>& recorded, int64_t generation, std::vector<Found>* found);

// The order in which checkpoints were written: by generation, then by step.
bool WrittenBefore(const std::string& a, const std::string& b);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_FOUND_H_
