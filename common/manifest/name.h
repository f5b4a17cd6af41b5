// The name of a checkpoint's directory: "step-200-g3" after 200 steps, by generation 3.
#ifndef MUSTER_COMMON_MANIFEST_NAME_H_
#define MUSTER_COMMON_MANIFEST_NAME_H_

#include <cstdint>
#include <optional>
#include <string>

namespace muster::manifest {

struct CheckpointName {
  int64_t step = 0;
  int64_t generation = 0;
  friend bool operator==(const CheckpointName&, const CheckpointName&) = default;
};

// "step-200-g3" and "step-200-g3.tmp".
std::string FinalName(int64_t step, int64_t generation);
std::string TemporaryName(int64_t step, int64_t generation);

// The parts of such names; nothing for any other name.
std::optional<CheckpointName> ParseFinalName(const std::string& name);
std::optional<CheckpointName> ParseTemporaryName(const std::string& name);

// The last part of a path, also of "a/b/" and of ".".
std::string NameOfDirectory(const std::string& path);

}  // namespace muster::manifest

#endif  // MUSTER_COMMON_MANIFEST_NAME_H_
