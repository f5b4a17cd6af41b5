#include "worker/models/seed.h"

#include <xxhash.h>

#include <mutex>
#include <string>

#include "ATen/CPUGeneratorImpl.h"
#include "worker/device/generator.h"

namespace muster::models {
namespace {

std::mutex& Mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

at::Generator Process() { return at::detail::getDefaultCPUGenerator(); }

}  // namespace

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

bool IsProcessGenerator(const at::Generator& generator) { return generator == Process(); }

at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void SetState(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

BorrowedProcessGenerator::BorrowedProcessGenerator() : lock_(Mutex()), after_(State()) {}

BorrowedProcessGenerator::~BorrowedProcessGenerator() { SetState(after_); }

void BorrowedProcessGenerator::Seed(uint64_t seed) {
  at::Generator process = Process();
  Reseed(process, seed);
}

void BorrowedProcessGenerator::SetState(const at::Tensor& state) {
  models::SetState(Process(), state);
}

at::Tensor BorrowedProcessGenerator::State() const { return StateOf(Process()); }

}  // namespace muster::models
