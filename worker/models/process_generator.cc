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
  const std::lock_guard<std::mutex> lock(process.mutex());
  process.set_current_seed(seed);
}

void BorrowedProcessGenerator::SetState(const at::Tensor& state) {
  models::SetState(Process(), state);
}

at::Tensor BorrowedProcessGenerator::State() const { return StateOf(Process()); }

}  // namespace muster::models
