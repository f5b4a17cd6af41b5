#include "common/torchfile/pickle_document.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::torchfile {

absl::StatusOr<std::vector<size_t>> ReachableNodes(const PickleDocument& document) {
  constexpr int kDeepest = 100;
  constexpr int kOpen = -1;
  const absl::Status too_deep =
      absl::InvalidArgumentError(absl::StrCat("values nested deeper than ", kDeepest));
  // Visits each node once, and keeps its height, because other nodes may share it.
  std::vector<size_t> reachable = {document.root};
  std::unordered_map<size_t, int> heights = {{document.root, kOpen}};
  std::vector<std::pair<size_t, size_t>> path = {{document.root, 0}};  // node, next item
  while (!path.empty()) {
    auto& [node, next] = path.back();
    const std::vector<size_t>& items = document.nodes[node].items;
    if (next < items.size()) {
      const size_t item = items[next++];
      const auto [found, added] = heights.emplace(item, kOpen);
      if (!added && found->second == kOpen) {
        return absl::InvalidArgumentError("a value that contains itself");
      }
      if (!added) continue;
      reachable.push_back(item);
      path.emplace_back(item, 0);
      if (path.size() > kDeepest) return too_deep;
      continue;
    }
    int height = 0;
    for (const size_t item : items) height = std::max(height, heights.at(item) + 1);
    if (height > kDeepest) return too_deep;
    heights[node] = height;
    path.pop_back();
  }
  return reachable;
}

}  // namespace muster::torchfile
