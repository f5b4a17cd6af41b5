// A record of how steps have taken samples of data.train, for checkpoints. Each change adds a
// record, so that the place in the data after any step can be computed (worker/data/timeline.h).
#ifndef MUSTER_COMMON_MANIFEST_SAMPLING_RECORD_H_
#define MUSTER_COMMON_MANIFEST_SAMPLING_RECORD_H_

#include <cstdint>
#include <string>

#include "nlohmann/json_fwd.hpp"

namespace muster::manifest {

// All values are as in docs/reference/sampler.md.
struct SamplingRecord {
  // The number of steps done when this record began, and the sampler's position at that time.
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t cursor = 0;
  int64_t samples = 0;       // in an epoch, as the cursor counts them
  int64_t global_batch = 1;  // samples that a step takes
  std::string last;          // "drop"
  std::string order;         // "shuffled"
  uint64_t seed = 0;
  bool per_rank = false;  // each rank has files of its own
  // A command left out the samples before this place: no step took them, but they count as taken.
  bool skipped = false;
  friend bool operator==(const SamplingRecord&, const SamplingRecord&) = default;
};

nlohmann::ordered_json ToJson(const SamplingRecord& record);
// Throws on missing keys and wrong types, and if no step could take samples in this way.
SamplingRecord SamplingRecordFromJson(const nlohmann::ordered_json& json);

}  // namespace muster::manifest

#endif  // MUSTER_COMMON_MANIFEST_SAMPLING_RECORD_H_
