#include "common/safetensors/strict_json.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::safetensors {

absl::StatusOr<nlohmann::json> ParseStrictJson(const uint8_t* data, size_t size) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> open_objects;
  std::string duplicate;
  const auto note_keys = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      open_objects.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_objects.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second && duplicate.empty()) duplicate = key;
    }
    return true;
  };
  Json json = Json::parse(data, data + size, note_keys, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::DataLossError("not valid JSON");
  if (!duplicate.empty()) {
    return absl::DataLossError(absl::StrCat("'", duplicate, "' appears twice"));
  }
  return json;
}

}  // namespace muster::safetensors
