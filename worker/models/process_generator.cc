#include "worker/models/process_generator.h"

#include "ATen/CPUGeneratorImpl.h"

namespace muster::models {
namespace {

std::mutex& Mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

at::Generator Process() { return at::detail::getDefaultCPUGenerator(); }

}  // namespace

bool IsProcessGenerator(const at::Generator& generator) { return generator == Process(); }

BorrowedProcessGenerator::BorrowedProcessGenerator() : lock_(Mutex()), after_(State()) {}

BorrowedProcessGenerator::~BorrowedProcessGenerator() { SetState(after_); }

void BorrowedProcessGenerator::Seed(uint64_t seed) {
  at::Generator process = Process();
  const std::lock_guard<std::mutex> lock(process.mutex());
  process.set_current_seed(seed);
}

void BorrowedProcessGenerator::SetState(const at::Tensor& state) {
  at::Generator process = Process();
  const std::lock_guard<std::mutex> lock(process.mutex());
  process.set_state(state);
}

at::Tensor BorrowedProcessGenerator::State() const {
  at::Generator process = Process();
  const std::lock_guard<std::mutex> lock(process.mutex());
  return process.get_state();
}

}  // namespace muster::models
