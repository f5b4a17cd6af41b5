#include "worker/optim/groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/glob/glob.h"
#include "common/jobfile/near_name.h"

namespace muster::optim {
namespace {

std::string Capped(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kShown) absl::StrAppend(&text, " and ", names.size() - kShown, " more");
  return text;
}

// The longest piece of a pattern between its stars.
std::string LongestPiece(const std::string& pattern) {
  std::string longest;
  for (size_t begin = 0; begin <= pattern.size();) {
    const size_t end = std::min(pattern.find_first_of("*?", begin), pattern.size());
    if (end - begin > longest.size()) longest = pattern.substr(begin, end - begin);
    begin = end + 1;
  }
  return longest;
}

// Names that a mistyped pattern may have meant: the nearest one, and those that contain the longest
// piece of the pattern without the dots at the ends of the piece.
std::vector<std::string> Near(const std::string& pattern, const std::vector<std::string>& names) {
  std::vector<std::string> near;
  const std::string nearest = jobfile::NearName(pattern, names);
  if (!nearest.empty()) near.push_back(nearest);
  std::string piece = LongestPiece(pattern);
  while (!piece.empty() && piece.back() == '.') piece.pop_back();
  while (!piece.empty() && piece.front() == '.') piece.erase(piece.begin());
  if (piece.size() < 2) return near;
  for (const std::string& name : names) {
    if (name != nearest && name.find(piece) != std::string::npos) near.push_back(name);
  }
  return near;
}

absl::Status MatchesNothing(size_t index, const std::string& pattern,
                            const std::vector<std::string>& names) {
  std::string message = absl::StrCat("optimizer.groups[", index, "].match: found '", pattern,
                                     "', which matches none of the ", names.size(), " parameters");
  const std::vector<std::string> near = Near(pattern, names);
  if (!near.empty()) absl::StrAppend(&message, "; near it: ", Capped(near));
  if (!names.empty()) absl::StrAppend(&message, "; the parameters are: ", Capped(names));
  return absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<std::vector<GroupSettings>> SettingsFor(const std::vector<std::string>& names,
                                                       const std::vector<ParameterGroup>& groups) {
  std::vector<GroupSettings> settings(names.size());
  for (size_t index = 0; index < groups.size(); ++index) {
    const ParameterGroup& group = groups[index];
    bool matched = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!GlobMatches(group.match, names[i])) continue;
      matched = true;
      if (group.weight_decay.has_value()) settings[i].weight_decay = group.weight_decay;
      if (group.lr_scale.has_value()) settings[i].lr_scale = *group.lr_scale;
    }
    if (!matched) return MatchesNothing(index, group.match, names);
  }
  return settings;
}

}  // namespace muster::optim
