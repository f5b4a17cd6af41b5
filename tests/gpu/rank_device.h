// The functions of CUDA that a rank of tests/gpu needs. Without --config=cuda they do nothing.
#ifndef MUSTER_TESTS_GPU_RANK_DEVICE_H_
#define MUSTER_TESTS_GPU_RANK_DEVICE_H_

#include <string>

namespace muster {

// Makes LibTorch throw, or not, when the host would wait for the GPU (sync debug mode "error").
void ForbidWaiting(bool forbid);

// Record the times of the GPU's kernels from BeginTrace to EndTrace, and write them to a file as
// Chrome's trace events. Both are called in the thread of the session.
void BeginTrace();
void EndTrace(const std::string& path);

}  // namespace muster

#endif  // MUSTER_TESTS_GPU_RANK_DEVICE_H_
