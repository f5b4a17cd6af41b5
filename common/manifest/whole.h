// Whole numbers in JSON. nlohmann's conversions accept a number with a fraction or out of range;
// these throw std::invalid_argument.
#ifndef MUSTER_COMMON_MANIFEST_WHOLE_H_
#define MUSTER_COMMON_MANIFEST_WHOLE_H_

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace muster::manifest {

template <typename Integer>
Integer Whole(const nlohmann::ordered_json& json) {
  using Json = nlohmann::ordered_json;
  const bool fits = json.is_number_unsigned()
                        ? json.get<uint64_t>() <= uint64_t{std::numeric_limits<Integer>::max()}
                        : json.is_number_integer() && std::is_signed_v<Integer>;
  if (fits) return json.get<Integer>();
  throw std::invalid_argument(absl::StrCat(
      "expected a whole number, found ",
      json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace).substr(0, 60)));
}
template <typename Integer>
void WholeTo(const nlohmann::ordered_json& json, Integer* number) {
  *number = Whole<Integer>(json);
}
inline void WholeTo(const nlohmann::ordered_json& json, std::pair<int64_t, int64_t>* pair) {
  if (!json.is_array() || json.size() != 2) throw std::invalid_argument("expected a pair");
  *pair = {Whole<int64_t>(json[0]), Whole<int64_t>(json[1])};
}
template <typename Value>
void WholeTo(const nlohmann::ordered_json& json, std::vector<Value>* values) {
  if (!json.is_array()) throw std::invalid_argument("expected a list of whole numbers");
  for (const nlohmann::ordered_json& item : json) WholeTo(item, &values->emplace_back());
}

}  // namespace muster::manifest

#endif  // MUSTER_COMMON_MANIFEST_WHOLE_H_
