// Seeds derived from a job's seed, so that checkpoints need not contain the state of any generator:
// code that draws numbers creates (or re-seeds) a generator from the purpose of the numbers.
#ifndef MUSTER_WORKER_MODELS_SEED_H_
#define MUSTER_WORKER_MODELS_SEED_H_

#include <cstdint>
#include <string>

#include "ATen/core/Generator.h"
#include "c10/core/Device.h"

namespace muster::models {

// XXH3 of `name` seeded with `seed`: the initial values of the parameter `name`.
uint64_t SeedForName(uint64_t seed, const std::string& name);

// The dropout seed of one forward.
uint64_t SeedForForward(uint64_t seed, int64_t step, int64_t micro_batch, int64_t rank);

// A new generator of the device.
at::Generator MakeGenerator(uint64_t seed, c10::Device device = c10::kCPU);

// Seeds `generator` again with `seed`.
void Reseed(at::Generator& generator, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_SEED_H_
