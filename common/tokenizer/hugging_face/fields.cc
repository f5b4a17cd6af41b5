#include "common/tokenizer/hugging_face/fields.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/safetensors/strict_json.h"

namespace muster::tokenizer {
namespace {

using nlohmann::json;

using safetensors::Shown;

absl::Status Expected(const char* key, const char* what, const json& object) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  const bool there = object.is_object() && found != object.end();
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": expected ", what, ", found ", there ? Shown(*found) : "nothing"));
}

}  // namespace

std::string TypeOf(const json& object) {
  const auto type = object.is_object() ? object.find("type") : object.end();
  return object.is_object() && type != object.end() && type->is_string() ? type->get<std::string>()
                                                                         : "";
}

absl::Status OnlyKeys(const json& object, std::initializer_list<const char*> keys) {
  if (!object.is_object()) return absl::InvalidArgumentError("expected an object");
  for (const auto& [key, value] : object.items()) {
    const bool known = std::find(keys.begin(), keys.end(), key) != keys.end();
    if (known || value.is_null()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the key '", Shown(key), "' is not known"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> FlagOf(const json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if (found->is_boolean()) return found->get<bool>();
  return Expected(key, "true or false", object);
}

absl::StatusOr<const json*> ListOf(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_array()) return &*found;
  return Expected(key, "a list", object);
}

absl::StatusOr<std::string> TextOf(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_string()) return found->get<std::string>();
  return Expected(key, "a text", object);
}

absl::Status Unknown(const char* key, const json& found) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", Shown(found), " is not known"));
}

absl::Status UnknownType(const json& object, const char* allowed) {
  const std::string type = TypeOf(object);
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", allowed, ", found ", type.empty() ? Shown(object) : Shown(type)));
}

}  // namespace muster::tokenizer
