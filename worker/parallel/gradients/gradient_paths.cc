#include "worker/parallel/gradients/gradient_paths.h"

#include <unordered_set>
#include <utility>

namespace muster::parallel {

GradientPaths::GradientPaths(const std::vector<models::Parameter>& trainable,
                             std::function<void(size_t parameter)> expect,
                             std::function<void()> before_recomputation)
    : expect_(std::move(expect)),
      before_recomputation_(std::move(before_recomputation)),
      directly_(trainable.size()) {
  for (size_t i = 0; i < trainable.size(); ++i) {
    index_of_[trainable[i].tensor.unsafeGetTensorImpl()] = i;
  }
}

void GradientPaths::BeginPass() { directly_.assign(directly_.size(), false); }

void GradientPaths::Used(const models::Unit& unit, bool recomputed) {
  std::unordered_set<size_t> told;
  for (const auto& [name, tensor] : recomputed ? unit.Parameters() : unit.own_parameters()) {
    const auto found = index_of_.find(tensor.unsafeGetTensorImpl());
    if (found == index_of_.end()) continue;  // frozen
    const size_t index = found->second;
    if (recomputed && !told.insert(index).second) continue;
    if (!recomputed) {
      if (directly_[index]) continue;
      directly_[index] = true;
    }
    expect_(index);
  }
}

}  // namespace muster::parallel
