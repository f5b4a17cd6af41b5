#include "common/glob/near_pattern.h"

#include <algorithm>
#include <set>

#include "common/jobfile/near_name.h"

namespace muster {
namespace {

// The largest number of compared parts: a model of many thousand parameters has the same parts many
// times.
constexpr size_t kMostCandidates = 5000;

// Runs of whole parts of a name.
void AddRuns(const std::string& name, bool anywhere_before, bool anywhere_after,
             std::set<std::string>* runs) {
  std::vector<size_t> starts = {0};
  std::vector<size_t> ends;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    ends.push_back(dot);
    starts.push_back(dot + 1);
  }
  ends.push_back(name.size());
  for (const size_t start : starts) {
    if (start > 0 && !anywhere_before) break;
    for (const size_t end : ends) {
      if (end <= start || (end < name.size() && !anywhere_after)) continue;
      runs->insert(name.substr(start, end - start));
    }
  }
}

}  // namespace

std::string NearPattern(const std::string& pattern, const std::vector<std::string>& names) {
  // "*." or "*", what is between, ".*" or "*".
  size_t begin = pattern.find_first_not_of('*');
  if (begin == std::string::npos) return "";
  size_t end = pattern.find_last_not_of('*') + 1;
  const bool before = begin > 0;
  const bool after = end < pattern.size();
  if (before && begin < end && pattern[begin] == '.') ++begin;
  if (after && end > begin && pattern[end - 1] == '.') --end;
  std::set<std::string> runs;
  for (const std::string& name : names) {
    AddRuns(name, before, after, &runs);
    if (runs.size() > kMostCandidates) break;
  }
  const std::string near = jobfile::NearName(pattern.substr(begin, end - begin),
                                             std::vector<std::string>(runs.begin(), runs.end()));
  return near.empty() ? "" : pattern.substr(0, begin) + near + pattern.substr(end);
}

}  // namespace muster
