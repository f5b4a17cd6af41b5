// The folder of checkpoints that all nodes share. Checkpoints are written under a temporary name,
// renamed when they are complete, and removed. This file also models training, as a state that
// depends on each step and on each command that took effect.
#ifndef MUSTER_TESTS_SIMULATION_SHARED_DISK_H_
#define MUSTER_TESTS_SIMULATION_SHARED_DISK_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/random/splitmix.h"
#include "worker/train/schedule/command_schedule.h"

namespace muster::simulation {

// The state of a rank between two steps.
struct Training {
  int64_t step = 0;
  // The value of the last command that set the learning rate; 0: the value of the job.
  int64_t learning_rate = 0;
  // A value in place of parameters and optimizer state. It differs if training differed anywhere.
  uint64_t state = 0;
  // Pairs (steps done, command) in their order.
  std::vector<std::pair<int64_t, int64_t>> commands;
  // The commands that set learning rates.
  std::vector<std::pair<int64_t, int64_t>> rates;

  void DoStep() {
    ++step;
    state = random::Mix(state + static_cast<uint64_t>(learning_rate) * random::kGamma +
                        static_cast<uint64_t>(step));
  }
  // The measurements of the newest step: bytes that only the checker reads.
  std::string metrics() const { return std::to_string(state); }
};

struct SavedCheckpoint {
  std::string job;
  uint64_t generation = 0;
  Training training;
  train::CommandSchedule::Position position;
};

struct SharedDisk {
  // The last process that began in a job's folder.
  struct Epoch {
    uint64_t generation = 0;
    std::string incarnation;
    friend bool operator==(const Epoch&, const Epoch&) = default;
  };

  // The checkpoints by path.
  std::map<std::string, SavedCheckpoint> checkpoints;
  std::set<std::string> temporary;
  // The epochs by job.
  std::map<std::string, Epoch> epochs;
  // Saves fail while the disk is full; no file is found while it is not mounted.
  bool full = false;
  bool gone = false;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_SHARED_DISK_H_
