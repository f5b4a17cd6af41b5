// New parameters: their values depend on (seed, name) only, not on the order in which they are
// created, so that any rank can create each of them alone.
#ifndef MUSTER_WORKER_MODELS_INIT_H_
#define MUSTER_WORKER_MODELS_INIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::models {

// All float32, contiguous, without a gradient. In a scope of deferred_values.h they have no memory
// yet.
at::Tensor NormalInit(uint64_t seed, const std::string& name, const std::vector<int64_t>& shape,
                      double deviation);
// Uniform in [-bound, bound).
at::Tensor UniformInit(uint64_t seed, const std::string& name, const std::vector<int64_t>& shape,
                       double bound);
at::Tensor ConstantInit(const std::vector<int64_t>& shape, double value);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_INIT_H_
