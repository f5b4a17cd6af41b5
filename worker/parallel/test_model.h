// What the tests of the strategies train: a small function with everything that parameters can be,
// its gradients by plain autograd, and ranks as threads.
#ifndef MUSTER_WORKER_PARALLEL_TEST_MODEL_H_
#define MUSTER_WORKER_PARALLEL_TEST_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"

namespace muster::parallel {

// Numbers that depend on `seed` only, over several magnitudes.
at::Tensor Numbers(at::IntArrayRef sizes, uint64_t seed);

// Odd sizes; "unused" takes no part in the loss, "shared" takes part twice, "frozen" and "table"
// (int64) need no gradient, "wide" is float64.
std::vector<models::Parameter> MakeParameters();

// Of the micro-batch, differently on each rank.
at::Tensor Loss(const std::vector<models::Parameter>& parameters, int rank, int64_t step,
                int micro_batch);

// The independent run: one process, plain autograd per rank with parameters as they are in
// `parameters`, sums in rank order, one division. Undefined for frozen parameters.
std::vector<at::Tensor> ReferenceGradients(const std::vector<models::Parameter>& parameters,
                                           int world_size, int64_t step, int micro_batches,
                                           double divisor);

// As BatchNorm's: an average and a count.
std::vector<models::Buffer> MakeBuffers();
// What a forward does with them, differently on each rank.
void Count(const std::vector<models::Buffer>& buffers, int rank);

bool SameBits(const at::Tensor& a, const at::Tensor& b);

void RunRanks(int world_size, const std::function<void(comm::Communicator& ranks)>& body);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_TEST_MODEL_H_
