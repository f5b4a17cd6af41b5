// The GPUs of this host, from NVIDIA's management library (NVML,
// https://docs.nvidia.com/deploy/nvml-api). The library comes with the driver and is loaded at run
// time, so the agent runs on hosts without it.
#ifndef MUSTER_WORKER_AGENT_GPUS_H_
#define MUSTER_WORKER_AGENT_GPUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::agent {

struct Gpu {
  uint32_t index = 0;  // on this host, as nvidia-smi shows it
  std::string uuid;    // "GPU-8f2b...", what CUDA_VISIBLE_DEVICES takes
  std::string name;
  uint64_t memory_bytes = 0;  // 0: not known

  bool operator==(const Gpu&) const = default;
};

inline constexpr char kNvml[] = "libnvidia-ml.so.1";

// All GPUs of this host, by index; none if there is no such library. A GPU that is divided (MIG)
// counts once. UNAVAILABLE: there is a library, but it reports an error or is incomplete.
absl::StatusOr<std::vector<Gpu>> FindGpus(const std::string& library = kNvml);

// The GPUs that CUDA_VISIBLE_DEVICES selects. Its entries, separated by commas, are indices or the
// beginnings of UUIDs. Indices are those of nvidia-smi (CUDA's own, if CUDA_DEVICE_ORDER is
// PCI_BUS_ID). The list ends before the first entry that selects no GPU, as in CUDA. Absent: all
// GPUs.
std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus,
                             const std::optional<std::string>& visible);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GPUS_H_
