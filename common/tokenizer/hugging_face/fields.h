// Fields of tokenizer.json, a file that nobody has checked. Errors are INVALID_ARGUMENT and name
// the field.
#ifndef MUSTER_COMMON_TOKENIZER_HUGGING_FACE_FIELDS_H_
#define MUSTER_COMMON_TOKENIZER_HUGGING_FACE_FIELDS_H_

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace muster::tokenizer {

// Returns the text of the key "type"; "" if there is none.
std::string TypeOf(const nlohmann::json& object);

// Refuses an object with another key, whose meaning is not known. A null counts as absent.
absl::Status OnlyKeys(const nlohmann::json& object, std::initializer_list<const char*> keys);

absl::StatusOr<bool> FlagOf(const nlohmann::json& object, const char* key, bool otherwise);
absl::StatusOr<const nlohmann::json*> ListOf(const nlohmann::json& object, const char* key);
absl::StatusOr<std::string> TextOf(const nlohmann::json& object, const char* key);

// The errors for a value that Muster does not know.
absl::Status Unknown(const char* key, const nlohmann::json& found);
absl::Status UnknownType(const nlohmann::json& object, const char* allowed);

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_HUGGING_FACE_FIELDS_H_
