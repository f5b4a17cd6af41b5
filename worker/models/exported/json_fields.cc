#include "worker/models/exported/json_fields.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status.h"

namespace muster::models::exported {
namespace {

using nlohmann::json;

absl::StatusOr<const json*> Field(const json& object, const char* field) {
  if (!object.is_object()) return Expected("an object", object);
  const auto found = object.find(field);
  if (found != object.end()) return &*found;
  return absl::InvalidArgumentError(absl::StrCat("has no '", field, "'"));
}

template <typename Is>
absl::StatusOr<const json*> FieldOf(const json& object, const char* field, const char* what,
                                    Is is) {
  ASSIGN_OR_RETURN(const json* found, Field(object, field));
  if (is(*found)) return found;
  return Annotate(Expected(what, *found), field);
}

}  // namespace

std::string Shown(const std::string& text) {
  constexpr size_t kShown = 200;
  return absl::CHexEscape(text.size() <= kShown ? text
                                                : absl::StrCat(text.substr(0, kShown), "..."));
}

absl::Status Expected(const std::string& what, const json& found) {
  const std::string text = found.is_structured() ? found.type_name()
                           : found.is_string()
                               ? absl::StrCat("'", Shown(found.get<std::string>()), "'")
                               : found.dump();
  return absl::InvalidArgumentError(absl::StrCat("expected ", what, ", found ", text));
}

absl::Status OnlyFields(const json& object, std::initializer_list<const char*> fields) {
  if (!object.is_object()) return Expected("an object", object);
  for (const auto& [key, value] : object.items()) {
    if (std::find(fields.begin(), fields.end(), key) != fields.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("has the unknown field '", Shown(key), "'; known are ",
                     absl::StrJoin(fields.begin(), fields.end(), ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Text(const json& object, const char* field) {
  ASSIGN_OR_RETURN(const json* found, FieldOf(object, field, "a text",
                                              [](const json& one) { return one.is_string(); }));
  return found->get<std::string>();
}

absl::StatusOr<int64_t> Integer(const json& object, const char* field) {
  ASSIGN_OR_RETURN(const json* found, FieldOf(object, field, "a number", [](const json& one) {
                     return one.is_number_integer() &&
                            (!one.is_number_unsigned() || one.get<uint64_t>() <= INT64_MAX);
                   }));
  return found->get<int64_t>();
}

absl::StatusOr<bool> Boolean(const json& object, const char* field) {
  ASSIGN_OR_RETURN(const json* found, FieldOf(object, field, "true or false",
                                              [](const json& one) { return one.is_boolean(); }));
  return found->get<bool>();
}

absl::StatusOr<const json*> List(const json& object, const char* field) {
  return FieldOf(object, field, "a list", [](const json& one) { return one.is_array(); });
}

absl::StatusOr<const json*> Object(const json& object, const char* field) {
  return FieldOf(object, field, "an object", [](const json& one) { return one.is_object(); });
}

}  // namespace muster::models::exported
