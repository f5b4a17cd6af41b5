// A model for the tests of the strategies: a small function with every kind of parameter, its
// gradients by plain autograd, and ranks as threads.
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

// Returns numbers of several magnitudes, which depend only on `seed`.
at::Tensor Numbers(at::IntArrayRef sizes, uint64_t seed);

// Parameters of odd sizes. The loss does not use "unused" and uses "shared" twice; "frozen" and
// "table" (int64) require no gradient; "wide" is float64.
std::vector<models::Parameter> MakeParameters();

// Returns the loss of a micro-batch, which differs between ranks.
at::Tensor Loss(const std::vector<models::Parameter>& parameters, int rank, int64_t step,
                int micro_batch);

// Returns the gradients of an independent run: plain autograd in one process for each rank, with
// the values of `parameters`, sums in the order of the ranks, and one division. Gradients are -0.0
// for parameters that no rank used, and undefined for frozen parameters.
std::vector<at::Tensor> ReferenceGradients(const std::vector<models::Parameter>& parameters,
                                           int world_size, int64_t step, int micro_batches,
                                           double divisor);

// Buffers like those of BatchNorm: an average and a count.
std::vector<models::Buffer> MakeBuffers();
// Changes the buffers as a forward would, differently on each rank.
void Count(const std::vector<models::Buffer>& buffers, int rank);

bool SameBits(const at::Tensor& a, const at::Tensor& b);

void RunRanks(int world_size, const std::function<void(comm::Communicator& ranks)>& body);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_TEST_MODEL_H_
