#include "worker/device/peak_flops.h"

#include "absl/strings/ascii.h"
#ifdef MUSTER_CUDA
#include <cuda_runtime_api.h>
#endif

namespace muster::device {
namespace {

struct Gpu {
  std::string_view name;  // part of the driver's name; the first that fits counts
  double half;            // TFLOP/s
  double single;
};

constexpr Gpu kGpus[] = {
    {"GB200", 2500, 80},
    {"B200", 2250, 75},
    {"B100", 1750, 60},
    {"GH200", 989.4, 66.9},
    {"H200", 989.4, 66.9},
    {"H100 PCIe", 756, 51.2},
    {"H100 NVL", 835, 60},
    {"H100", 989.4, 66.9},
    {"H800", 989.4, 66.9},
    {"H20", 148, 44},
    {"A100", 312, 19.5},
    {"A800", 312, 19.5},
    {"A40", 149.7, 37.4},
    {"A30", 165, 10.3},
    {"A10G", 70, 35},
    {"A10", 125, 31.2},
    {"L40S", 362, 91.6},
    {"L40", 181, 90.5},
    {"L4", 121, 30.3},
    {"V100", 125, 15.7},
    {"T4", 65, 8.1},
    {"RTX 6000 Ada", 364, 91.1},
    {"RTX A6000", 154.8, 38.7},
    {"RTX 5090", 209.5, 104.8},
    {"RTX 4090", 165.2, 82.6},
    {"RTX 3090", 71, 35.6},
};

// True if the text contains these words: "A100-SXM4" contains "A100", but "A4000" does not contain
// "A40".
bool Has(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == std::string_view::npos) return false;
  const size_t end = at + words.size();
  return (at == 0 || !absl::ascii_isalnum(text[at - 1])) &&
         (end == text.size() || !absl::ascii_isalnum(text[end]));
}

}  // namespace

double PeakFlopsOf(std::string_view gpu, bool half) {
  for (const Gpu& known : kGpus) {
    if (!Has(gpu, known.name)) continue;
    return 1e12 * (half ? known.half : known.single);
  }
  return 0;
}

double PeakFlopsOf(c10::Device device, bool half) {
#ifdef MUSTER_CUDA
  cudaDeviceProp properties;
  if (device.is_cuda() &&
      cudaGetDeviceProperties(&properties, device.has_index() ? device.index() : 0) ==
          cudaSuccess) {
    return PeakFlopsOf(std::string_view(properties.name), half);
  }
#endif
  return 0;
}

}  // namespace muster::device
