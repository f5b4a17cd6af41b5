// Seeds that are derived from a job's seed, and the process-wide generator.
//
// Code that draws numbers creates (or re-seeds) a generator from the purpose of the numbers. So
// checkpoints need not contain the state of any generator. Operations of LibTorch that get no
// generator draw from the process-wide generator of the CPU.
#ifndef MUSTER_WORKER_MODELS_SEED_H_
#define MUSTER_WORKER_MODELS_SEED_H_

#include <cstdint>
#include <mutex>
#include <string>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"

namespace muster::models {

// Returns XXH3 of `name` seeded with `seed`, for the initial values of the parameter `name`.
uint64_t SeedForName(uint64_t seed, const std::string& name);

// Returns the dropout seed of one forward.
uint64_t SeedForForward(uint64_t seed, int64_t step, int64_t micro_batch, int64_t rank);

// A new generator of the device.
at::Generator MakeGenerator(uint64_t seed, c10::Device device = c10::kCPU);

// Seeds `generator` again with `seed`.
void Reseed(at::Generator& generator, uint64_t seed);

bool IsProcessGenerator(const at::Generator& generator);

// Returns, or sets, the state of any generator, under its lock.
at::Tensor StateOf(at::Generator generator);
void SetState(at::Generator generator, const at::Tensor& state);

// Gives this thread the process-wide generator during the life of the object, and then restores the
// generator's former state. Only one object exists at a time; a second constructor waits. So ranks
// that are threads of one process do not disturb each other.
class BorrowedProcessGenerator {
 public:
  BorrowedProcessGenerator();
  ~BorrowedProcessGenerator();
  BorrowedProcessGenerator(const BorrowedProcessGenerator&) = delete;
  BorrowedProcessGenerator& operator=(const BorrowedProcessGenerator&) = delete;

  void Seed(uint64_t seed);
  void SetState(const at::Tensor& state);
  at::Tensor State() const;
  // Makes the destructor set this state instead of the former state.
  void Leave(const at::Tensor& state) { after_ = state; }

 private:
  const std::lock_guard<std::mutex> lock_;
  at::Tensor after_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_SEED_H_
