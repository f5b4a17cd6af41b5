// The folder of checkpoints that all nodes see: what is written under a temporary name, renamed
// once it is whole, and removed. And training itself as far as it matters here: a state that
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
#include "worker/train/command_schedule.h"

namespace muster::simulation {

// What a rank holds between two steps.
struct Training {
  int64_t step = 0;
  // Of the command that set it last; 0: that of the job.
  int64_t learning_rate = 0;
  // Stands for parameters and optimizer: two courses that differ anywhere differ here.
  uint64_t state = 0;
  // (Steps done, command) in their order.
  std::vector<std::pair<int64_t, int64_t>> commands;
  // The learning rates among them.
  std::vector<std::pair<int64_t, int64_t>> rates;

  void DoStep() {
    ++step;
    state = random::Mix(state + static_cast<uint64_t>(learning_rate) * random::kGamma +
                        static_cast<uint64_t>(step));
  }
  // What is measured of the newest step: bytes that nobody before the checker looks at.
  std::string metrics() const { return std::to_string(state); }
};

struct SavedCheckpoint {
  std::string job;
  uint64_t generation = 0;
  Training training;
  train::CommandSchedule::Position position;
};

struct SharedDisk {
  // Which process was the last to begin in a job's folder.
  struct Epoch {
    uint64_t generation = 0;
    std::string incarnation;
    friend bool operator==(const Epoch&, const Epoch&) = default;
  };

  // By path.
  std::map<std::string, SavedCheckpoint> checkpoints;
  std::set<std::string> temporary;
  // By job.
  std::map<std::string, Epoch> epochs;
  // Saves fail while it is full; nothing is found while it is gone.
  bool full = false;
  bool gone = false;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_SHARED_DISK_H_
