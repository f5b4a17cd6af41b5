// Fields of JSON objects from a file that nobody has checked yet. Errors are INVALID_ARGUMENT, with
// the name of the field, what was expected and what was found.
#ifndef MUSTER_WORKER_MODELS_EXPORTED_JSON_FIELDS_H_
#define MUSTER_WORKER_MODELS_EXPORTED_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace muster::models::exported {

// Returns a text of a file for an error: at most 200 bytes, without control characters.
std::string Shown(const std::string& text);

// Returns the error "expected <what>, found <the value>".
absl::Status Expected(const std::string& what, const nlohmann::json& found);

// Checks that an object has no other fields than these.
absl::Status OnlyFields(const nlohmann::json& object, std::initializer_list<const char*> fields);

absl::StatusOr<std::string> Text(const nlohmann::json& object, const char* field);
absl::StatusOr<int64_t> Integer(const nlohmann::json& object, const char* field);
absl::StatusOr<bool> Boolean(const nlohmann::json& object, const char* field);
absl::StatusOr<const nlohmann::json*> List(const nlohmann::json& object, const char* field);
absl::StatusOr<const nlohmann::json*> Object(const nlohmann::json& object, const char* field);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_JSON_FIELDS_H_
