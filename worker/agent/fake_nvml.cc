// A stand-in for NVIDIA's management library with two GPUs, for tests on machines without GPUs. The
// variable MUSTER_FAKE_NVML makes it fail.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Memory {
  unsigned long long total, free, used;  // NOLINT: the types of NVML
};

bool Says(const char* what) {
  const char* value = std::getenv("MUSTER_FAKE_NVML");
  return value != nullptr && std::strcmp(value, what) == 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return Says("no driver") ? 9 : 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "GPU is lost"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<size_t>(index) + 1);
  return Says("lost") && index == 1 ? 15 : 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  std::snprintf(text, length, "GPU-%zu0000000-aaaa", reinterpret_cast<size_t>(device));
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned length) {
  std::snprintf(text, length, "NVIDIA Test 80GB");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {85899345920ull, 0, 0};
  return 0;
}
}
