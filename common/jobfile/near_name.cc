#include "common/jobfile/near_name.h"

#include <algorithm>
#include <set>

namespace muster::jobfile {
namespace {

std::string Fold(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
    if (c == '-' || c == ' ') c = '_';
  }
  return text;
}

// Optimal string alignment distance.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string NearName(const std::string& found, const std::vector<std::string>& names) {
  // Longer names than people type are skipped: the table below grows quadratically.
  if (found.empty() || found.size() > 64) return "";
  const std::string folded = Fold(found);
  std::string best;
  size_t best_distance = 0;
  for (const std::string& name : names) {
    const size_t distance = Distance(folded, Fold(name));
    const size_t bound = std::max<size_t>(1, std::max(folded.size(), name.size()) / 3);
    if (distance > bound || (!best.empty() && distance >= best_distance)) continue;
    best = name;
    best_distance = distance;
  }
  return best;
}

namespace {

// The largest number of compared parts. A model of many thousand parameters repeats the same parts.
constexpr size_t kMostCandidates = 5000;

// Adds runs of whole parts of a name.
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
  // Splits the pattern: "*." or "*", the middle, ".*" or "*".
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
  const std::string near = NearName(pattern.substr(begin, end - begin),
                                    std::vector<std::string>(runs.begin(), runs.end()));
  return near.empty() ? "" : pattern.substr(0, begin) + near + pattern.substr(end);
}

}  // namespace muster::jobfile
