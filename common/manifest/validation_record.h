// The results of the validation passes of a job's fit stages, for checkpoints. They are the best
// checkpoint, the time without improvement, and the stages that ended early. Decided by
// worker/train/job/improvement.h.
#ifndef MUSTER_COMMON_MANIFEST_VALIDATION_RECORD_H_
#define MUSTER_COMMON_MANIFEST_VALIDATION_RECORD_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace muster::manifest {

// All numbers are finite.
struct ValidationRecord {
  // The checkpoint after the best validation pass of the job.
  struct Best {
    int64_t step = 0;
    int64_t generation = 0;  // that wrote the checkpoint
    double value = 0;
    friend bool operator==(const Best&, const Best&) = default;
  };
  std::optional<Best> best;

  // The state of a stage that ends early if validation does not improve.
  struct Patience {
    int64_t stage = 0;  // its index in the job's list
    // The pass that later passes must improve on: its step, and its number. Absent: there is none.
    std::optional<std::pair<int64_t, double>> best;
    int64_t passes = 0;  // since `best`, or since the stage began
    friend bool operator==(const Patience&, const Patience&) = default;
  };
  std::optional<Patience> patience;

  // The fit stages that ended early, in the order of the job's list. Each has its index in the
  // list, and the steps of the whole job done at its end.
  std::vector<std::pair<int64_t, int64_t>> ended;

  friend bool operator==(const ValidationRecord&, const ValidationRecord&) = default;
};

nlohmann::ordered_json ToJson(const ValidationRecord& record);
// Throws on missing keys and wrong types.
ValidationRecord ValidationRecordFromJson(const nlohmann::ordered_json& json);

}  // namespace muster::manifest

#endif  // MUSTER_COMMON_MANIFEST_VALIDATION_RECORD_H_
