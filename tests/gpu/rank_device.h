// What a rank of tests/gpu needs of CUDA. Without --config=cuda the functions do nothing.
#ifndef MUSTER_TESTS_GPU_RANK_DEVICE_H_
#define MUSTER_TESTS_GPU_RANK_DEVICE_H_

#include <string>

namespace muster {

// Whether LibTorch throws from now on where the host would wait for the GPU (sync debug mode
// "error").
void ForbidWaiting(bool forbid);

// Records, from the first call to the second, when the GPU runs which kernel, and writes it to a
// file as Chrome's trace events. Both in the thread of the session.
void BeginTrace();
void EndTrace(const std::string& path);

}  // namespace muster

#endif  // MUSTER_TESTS_GPU_RANK_DEVICE_H_
