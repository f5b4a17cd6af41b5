// The order of an epoch. docs/sampler.md specifies it so exactly that any language reproduces it.
#ifndef MUSTER_WORKER_DATA_PERMUTATION_H_
#define MUSTER_WORKER_DATA_PERMUTATION_H_

#include <cstdint>
#include <vector>

namespace muster::data {

// A permutation of [0, n): Fisher-Yates from the end, driven by splitmix64 of (seed, epoch).
std::vector<int64_t> Permutation(uint64_t seed, int64_t epoch, int64_t n);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_PERMUTATION_H_
