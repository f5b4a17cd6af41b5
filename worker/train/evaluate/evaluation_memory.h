// Whether the ranks gather all parameters of a sharded model once for a pass of evaluation. Pure.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_MEMORY_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_MEMORY_H_

#include <algorithm>
#include <cstdint>

namespace muster::train {

// What a rank knows of its memory, in bytes.
struct EvaluationMemory {
  // What it would allocate to hold all parameters.
  uint64_t needed = 0;
  // What earlier passes have allocated for the same purpose: the process has kept this memory.
  uint64_t kept = 0;
  // What the node has available, or on a GPU what the GPU has. UINT64_MAX: not known.
  uint64_t available = 0;
  // How many ranks share that.
  uint64_t ranks = 1;
};

// True if the rank may gather all parameters: what it needs beyond what is kept is at most half of
// its share of what is available. The other half is left for activations and other programs.
inline bool HasMemoryForAll(const EvaluationMemory& memory) {
  const uint64_t more = memory.needed - std::min(memory.needed, memory.kept);
  return more == 0 || more <= memory.available / memory.ranks / 2;
}

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_MEMORY_H_
