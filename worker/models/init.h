// Initial values of parameters. The values depend only on (seed, name) and not on the order of
// creation, so any rank can create a parameter alone.
#ifndef MUSTER_WORKER_MODELS_INIT_H_
#define MUSTER_WORKER_MODELS_INIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::models {

// All results are float32, contiguous, and without a gradient. In a scope of deferred_values.h the
// results have no memory yet.
at::Tensor NormalInit(uint64_t seed, const std::string& name, const std::vector<int64_t>& shape,
                      double deviation);
// Returns uniform values in [-bound, bound).
at::Tensor UniformInit(uint64_t seed, const std::string& name, const std::vector<int64_t>& shape,
                       double bound);
at::Tensor ConstantInit(const std::vector<int64_t>& shape, double value);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_INIT_H_
