#include "worker/data/tokens/best_fit.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace muster::data {

Packing PackBestFit(std::span<const int64_t> lengths, int64_t room) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  // The samples with each number of free tokens, without full samples.
  std::map<int64_t, std::set<int64_t>> open;
  std::vector<int64_t> sample_of(lengths.size());
  std::vector<int64_t> counts;
  for (const int64_t document : order) {
    const int64_t length = lengths[document];
    int64_t sample = static_cast<int64_t>(counts.size());
    int64_t left = room - length;
    if (const auto found = open.lower_bound(length); found != open.end()) {
      sample = *found->second.begin();
      left = found->first - length;
      found->second.erase(found->second.begin());
      if (found->second.empty()) open.erase(found);
    } else {
      counts.push_back(0);
    }
    if (left > 0) open[left].insert(sample);
    sample_of[document] = sample;
    ++counts[sample];
  }
  Packing packing;
  for (const int64_t count : counts) packing.begins.push_back(packing.begins.back() + count);
  packing.documents.resize(lengths.size());
  std::vector<int64_t> next(packing.begins.begin(), packing.begins.end() - 1);
  for (const int64_t document : order) {
    packing.documents[next[sample_of[document]]++] = document;
  }
  return packing;
}

Packing PackEach(int64_t documents) {
  Packing packing;
  packing.documents.resize(documents);
  packing.begins.resize(documents + 1);
  std::iota(packing.documents.begin(), packing.documents.end(), 0);
  std::iota(packing.begins.begin(), packing.begins.end(), 0);
  return packing;
}

}  // namespace muster::data
