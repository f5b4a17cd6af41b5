// LibTorch's process-wide generator of the CPU, from which operations draw that are given no other
// one.
#ifndef MUSTER_WORKER_MODELS_PROCESS_GENERATOR_H_
#define MUSTER_WORKER_MODELS_PROCESS_GENERATOR_H_

#include <cstdint>
#include <mutex>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"

namespace muster::models {

bool IsProcessGenerator(const at::Generator& generator);

// The state of any generator, under its lock.
at::Tensor StateOf(at::Generator generator);
void SetState(at::Generator generator, const at::Tensor& state);

// While it lives, the process-wide generator is this thread's; then it has its former state again.
// Only one object exists at a time, so that ranks that are threads of one process do not disturb
// each other: a second one waits.
class BorrowedProcessGenerator {
 public:
  BorrowedProcessGenerator();
  ~BorrowedProcessGenerator();
  BorrowedProcessGenerator(const BorrowedProcessGenerator&) = delete;
  BorrowedProcessGenerator& operator=(const BorrowedProcessGenerator&) = delete;

  void Seed(uint64_t seed);
  void SetState(const at::Tensor& state);
  at::Tensor State() const;
  // Afterwards it has this state, not its former one.
  void Leave(const at::Tensor& state) { after_ = state; }

 private:
  const std::lock_guard<std::mutex> lock_;
  at::Tensor after_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_PROCESS_GENERATOR_H_
