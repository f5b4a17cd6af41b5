// JSON for file formats. A key that is given twice is an error, which a parser that builds a tree
// would not report.
#ifndef MUSTER_COMMON_SAFETENSORS_STRICT_JSON_H_
#define MUSTER_COMMON_SAFETENSORS_STRICT_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace muster::safetensors {

// DATA_LOSS: "not valid JSON" (or not UTF-8), the first key that appears twice in an object, or
// more than 200 levels of objects and lists, which recursive code could not walk through.
absl::StatusOr<nlohmann::json> ParseStrictJson(const uint8_t* data, size_t size);

// Returns a value for an error: at most about 80 characters of ASCII, on one line.
std::string Shown(const nlohmann::json& value);

}  // namespace muster::safetensors

#endif  // MUSTER_COMMON_SAFETENSORS_STRICT_JSON_H_
