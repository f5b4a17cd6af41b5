#include "common/jobfile/near_name.h"

#include <algorithm>

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
  // Names that people type are shorter, and the table below grows quadratically.
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

}  // namespace muster::jobfile
