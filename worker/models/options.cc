#include "worker/models/options.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace muster::models {
namespace {

// Large enough for every model, small enough that products of two cannot overflow.
constexpr int64_t kMaxSize = int64_t{1} << 31;

bool IsSize(const nlohmann::json& value) {
  return value.is_number_integer() && value >= 1 && value <= kMaxSize;
}

}  // namespace

OptionReader::OptionReader(std::string kind, const nlohmann::json& json)
    : kind_(std::move(kind)), json_(json) {
  if (!json_.is_object() && !json_.is_null()) {
    problems_.Add(absl::StrCat("expected an object of options, found ", json_.dump()));
  }
}

const nlohmann::json* OptionReader::Find(const std::string& key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.push_back(key);
  if (!json_.is_object()) return nullptr;
  const auto found = json_.find(key);
  return found == json_.end() ? nullptr : &*found;
}

void OptionReader::Wrong(const std::string& key, const std::string& allowed,
                         const nlohmann::json& found) {
  problems_.Add(absl::StrCat(key, ": expected ", allowed, ", found ", found.dump()));
}

int64_t OptionReader::Size(const std::string& key, std::optional<int64_t> fallback) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    if (!fallback.has_value())
      problems_.Add(key + ": expected an integer from 1 on, found nothing");
    return fallback.value_or(1);
  }
  if (IsSize(*value)) return value->get<int64_t>();
  Wrong(key, "an integer from 1 on", *value);
  return 1;
}

std::vector<int64_t> OptionReader::Sizes(const std::string& key) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return {};
  if (value->is_array() && std::all_of(value->begin(), value->end(), IsSize)) {
    return value->get<std::vector<int64_t>>();
  }
  Wrong(key, "a list of integers from 1 on", *value);
  return {};
}

double OptionReader::Positive(const std::string& key, double fallback) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_number() && *value > 0 && std::isfinite(value->get<double>())) {
    return value->get<double>();
  }
  Wrong(key, "a number above 0", *value);
  return fallback;
}

double OptionReader::Probability(const std::string& key, double fallback) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_number() && *value >= 0 && *value < 1) return value->get<double>();
  Wrong(key, "a number in [0, 1)", *value);
  return fallback;
}

bool OptionReader::Flag(const std::string& key, bool fallback) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Wrong(key, "true or false", *value);
  return fallback;
}

std::string OptionReader::Text(const std::string& key) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    problems_.Add(key + ": expected a text, found nothing");
    return "";
  }
  if (value->is_string() && !value->get_ref<const std::string&>().empty()) return value->get<std::string>();
  Wrong(key, "a text", *value);
  return "";
}

std::map<std::string, std::string> OptionReader::Texts(const std::string& key) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return {};
  if (value->is_object() && std::all_of(value->begin(), value->end(),
                                        [](const auto& text) { return text.is_string(); })) {
    return value->get<std::map<std::string, std::string>>();
  }
  Wrong(key, "an object of texts", *value);
  return {};
}

absl::Status OptionReader::Finish() {
  if (json_.is_object()) {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
        problems_.Add(
            absl::StrCat(key, ": unknown option, allowed are ", absl::StrJoin(asked_, ", ")));
      }
    }
  }
  return problems_.ToStatus(absl::StatusCode::kInvalidArgument, "model " + kind_);
}

}  // namespace muster::models
