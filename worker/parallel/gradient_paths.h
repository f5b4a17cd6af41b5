// Counts in how many ways a backward will bring gradients to each parameter, where units are
// recomputed.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENT_PATHS_H_
#define MUSTER_WORKER_PARALLEL_GRADIENT_PATHS_H_

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

#include "worker/models/unit.h"

namespace muster::parallel {

class GradientPaths : public models::UseObserver {
 public:
  // trainable: of the model's parameters. expect: called with the index of one for each way in
  // which a gradient will come to it. before_recomputation: UseObserver's.
  GradientPaths(const std::vector<models::Parameter>& trainable,
                std::function<void(size_t parameter)> expect,
                std::function<void()> before_recomputation);

  // Before the forward of a micro-batch.
  void BeginPass();
  void Used(const models::Unit& unit, bool recomputed) override;
  void BeforeRecomputation() override { before_recomputation_(); }

 private:
  const std::function<void(size_t parameter)> expect_;
  const std::function<void()> before_recomputation_;
  std::unordered_map<const void*, size_t> index_of_;
  std::vector<bool> directly_;  // used in this pass by a call that is not recomputed
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENT_PATHS_H_
