#include "worker/models/seed.h"

#include <xxhash.h>

#include <mutex>
#include <string>

#include "worker/device/generator.h"

namespace muster::models {

uint64_t SeedForName(uint64_t seed, const std::string& name) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

uint64_t SeedForForward(uint64_t seed, int64_t step, int64_t micro_batch, int64_t rank) {
  const int64_t key[] = {step, micro_batch, rank};
  return XXH3_64bits_withSeed(key, sizeof(key), seed);
}

at::Generator MakeGenerator(uint64_t seed, c10::Device device) {
  at::Generator generator = device::NewGenerator(device);
  Reseed(generator, seed);
  return generator;
}

void Reseed(at::Generator& generator, uint64_t seed) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace muster::models
