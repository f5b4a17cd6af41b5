#include "c10/cuda/CUDAFunctions.h"
#include "tests/gpu/rank_device.h"
#include "torch/csrc/autograd/profiler_kineto.h"

namespace muster {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

}  // namespace

void ForbidWaiting(bool forbid) {
  c10::cuda::warning_state().set_sync_debug_mode(forbid ? c10::cuda::SyncDebugMode::L_ERROR
                                                        : c10::cuda::SyncDebugMode::L_DISABLED);
}

void BeginTrace() {
  c10::cuda::device_synchronize();
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, {ActivityType::CUDA});
  profiler::enableProfiler(config, {ActivityType::CUDA});
}

void EndTrace(const std::string& path) {
  c10::cuda::device_synchronize();
  profiler::disableProfiler()->save(path);
}

}  // namespace muster
