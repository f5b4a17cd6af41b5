// Whole checkpoints in a job's folder that the coordinator does not name: written by a process that
// was gone before it could say so, or by one whose coordinator has lost its newer rows (a restored
// database). They are never removed.
#ifndef MUSTER_WORKER_CHECKPOINT_FOUND_H_
#define MUSTER_WORKER_CHECKPOINT_FOUND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::checkpoint {

// Names of directories in the folder.
struct Known {
  // They count.
  std::vector<std::string> recorded;
  // They do not count any more, and never will.
  std::vector<std::string> retired;
};

struct Found {
  std::string name;
  int64_t step = 0;
  int64_t generation = 0;
  int64_t last_command = 0;
  // Why it does not continue the job's own course; empty: it does, as far as its name and its
  // manifest tell, and what it holds is still to be verified.
  std::string reason;
};

// Looks through the folder. `job` and `instance`: whose it is; `generation`: that looks. By rising
// generation and step. A checkpoint continues the course where it is this job's, of an earlier
// generation, after all that is recorded, and no later generation went on from an earlier step.
absl::StatusOr<std::vector<Found>> FindUnknown(const std::string& folder, const Known& known,
                                               const std::string& job, const std::string& instance,
                                               int64_t generation);

// What names, steps and generations alone say of `found`, which FindUnknown has read: by rising
// generation and step, each with what its manifest has against it. Adds the other reasons. Pure.
void Judge(const std::vector<std::string>& recorded, int64_t generation, std::vector<Found>* found);

// The order in which checkpoints were written: by generation, then by step.
bool WrittenBefore(const std::string& a, const std::string& b);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_FOUND_H_
