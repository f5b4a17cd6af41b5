#include "worker/checkpoint/weight_names.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/glob/glob.h"
#include "common/jobfile/near_name.h"

namespace muster::checkpoint {
namespace {

// The part of `name` for the star of `from`; nothing if `name` does not match. Without a star: "".
std::optional<absl::string_view> StarOf(absl::string_view from, absl::string_view name) {
  const size_t star = from.find('*');
  if (star == absl::string_view::npos) {
    return from == name ? std::optional<absl::string_view>("") : std::nullopt;
  }
  const absl::string_view begin = from.substr(0, star), end = from.substr(star + 1);
  if (name.size() < begin.size() + end.size() || !absl::StartsWith(name, begin) ||
      !absl::EndsWith(name, end)) {
    return std::nullopt;
  }
  return name.substr(begin.size(), name.size() - begin.size() - end.size());
}

std::string Renamed(absl::string_view to, absl::string_view star) {
  const size_t at = to.find('*');
  if (at == absl::string_view::npos) return std::string(to);
  return absl::StrCat(to.substr(0, at), star, to.substr(at + 1));
}

std::string DidYouMean(const std::string& pattern, const std::vector<std::string>& names) {
  const std::string near = jobfile::NearPattern(pattern, names);
  return near.empty() ? "" : absl::StrCat("; did you mean '", near, "'?");
}

}  // namespace

std::vector<std::optional<std::string>> TakenNames(const std::vector<std::string>& names,
                                                   const std::vector<std::string>& take,
                                                   const Renames& renames, Problems* problems) {
  const auto matches_any = [&names](const std::string& pattern) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return GlobMatches(pattern, name); });
  };
  for (const std::string& pattern : take) {
    if (matches_any(pattern)) continue;
    problems->Add(absl::StrCat("take: '", pattern, "' matches no tensor of the file",
                               DidYouMean(pattern, names)));
  }
  std::vector<std::optional<std::string>> taken(names.size());
  std::vector<std::string> all_taken;
  std::map<std::string, size_t> used;  // by rename: the number of renamed tensors
  std::map<std::string, std::string> sources;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (!take.empty() && std::none_of(take.begin(), take.end(), [&](const std::string& pattern) {
          return GlobMatches(pattern, name);
        })) {
      continue;
    }
    all_taken.push_back(name);
    const std::string* by = nullptr;
    for (const auto& [from, to] : renames) {
      const auto star = StarOf(from, name);
      if (!star.has_value()) continue;
      ++used[from];
      if (by != nullptr) {
        problems->Add(absl::StrCat("rename: both '", *by, "' and '", from, "' match '", name, "'"));
        continue;
      }
      by = &from;
      taken[i] = Renamed(to, *star);
    }
    if (by == nullptr) taken[i] = name;
    const auto [other, first] = sources.emplace(*taken[i], name);
    if (first) continue;
    problems->Add(absl::StrCat("rename: both '", other->second, "' and '", name, "' would be '",
                               *taken[i], "'"));
  }
  for (const auto& [from, to] : renames) {
    if (used[from] > 0) continue;
    problems->Add(absl::StrCat("rename: '", from, "' matches no tensor that is taken",
                               DidYouMean(from, all_taken)));
  }
  return taken;
}

}  // namespace muster::checkpoint
