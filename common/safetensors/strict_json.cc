#include "common/safetensors/strict_json.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::safetensors {
namespace {

constexpr int kMostLevels = 200;

}  // namespace

absl::StatusOr<nlohmann::json> ParseStrictJson(const uint8_t* data, size_t size) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> open_objects;
  std::string duplicate;
  int deepest = 0;
  const auto note_keys = [&](int depth, Json::parse_event_t event, Json& parsed) {
    deepest = std::max(deepest, depth);
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
  if (deepest > kMostLevels) {
    return absl::DataLossError(absl::StrCat("has more than ", kMostLevels, " levels"));
  }
  return json;
}

std::string Shown(const nlohmann::json& value) {
  constexpr size_t kShown = 80;
  const std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  return text.size() <= kShown ? text : absl::StrCat(text.substr(0, kShown), "...");
}

}  // namespace muster::safetensors
