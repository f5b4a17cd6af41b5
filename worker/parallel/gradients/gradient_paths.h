// Counts how many gradients a backward will bring to each parameter if units are recomputed.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_GRADIENT_PATHS_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_GRADIENT_PATHS_H_

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

#include "worker/models/unit.h"

namespace muster::parallel {

class GradientPaths : public models::UseObserver {
 public:
  // trainable: the trainable ones of the model's parameters. expect: called once for each gradient
  // that will come, with the index of its parameter in `trainable`. before_recomputation: called by
  // BeforeRecomputation.
  GradientPaths(const std::vector<models::Parameter>& trainable,
                std::function<void(size_t parameter)> expect,
                std::function<void()> before_recomputation);

  // Called before the forward of a micro-batch.
  void BeginPass();
  void Used(const models::Unit& unit, bool recomputed) override;
  void BeforeRecomputation() override { before_recomputation_(); }

 private:
  const std::function<void(size_t parameter)> expect_;
  const std::function<void()> before_recomputation_;
  std::unordered_map<const void*, size_t> index_of_;
  // By parameter: whether a call that is not recomputed has used it in this pass.
  std::vector<bool> directly_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_GRADIENT_PATHS_H_
