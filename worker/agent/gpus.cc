#include "worker/agent/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/status.h"

namespace muster::agent {
namespace {

// The types and constants of nvml.h that are used here.
struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;  // NOLINT: the types of NVML
};
using NvmlDevice = void*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlNotSupported = 3;
constexpr int kNvmlDriverNotLoaded = 9;

// The functions of the library.
class Nvml {
 public:
  static absl::StatusOr<Nvml> Load(void* handle) {
    Nvml nvml;
    std::string missing;
    const auto find = [&](auto* function, const char* name) {
      *function = reinterpret_cast<std::decay_t<decltype(*function)>>(dlsym(handle, name));
      if (*function == nullptr) missing = name;
    };
    find(&nvml.init, "nvmlInit_v2");
    find(&nvml.shutdown, "nvmlShutdown");
    find(&nvml.error_text, "nvmlErrorString");
    find(&nvml.count, "nvmlDeviceGetCount_v2");
    find(&nvml.device, "nvmlDeviceGetHandleByIndex_v2");
    find(&nvml.uuid, "nvmlDeviceGetUUID");
    find(&nvml.name, "nvmlDeviceGetName");
    find(&nvml.memory, "nvmlDeviceGetMemoryInfo");
    if (missing.empty()) return nvml;
    return absl::UnavailableError(absl::StrCat("it has no function ", missing));
  }

  absl::Status Check(const char* call, int result) const {
    if (result == kNvmlSuccess) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(call, ": ", error_text(result)));
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, NvmlDevice*) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
};

absl::StatusOr<Gpu> Read(const Nvml& nvml, unsigned index) {
  Gpu gpu{.index = index};
  NvmlDevice device = nullptr;
  RETURN_IF_ERROR(nvml.Check("nvmlDeviceGetHandleByIndex", nvml.device(index, &device)));
  std::array<char, 256> text = {};
  RETURN_IF_ERROR(nvml.Check("nvmlDeviceGetUUID", nvml.uuid(device, text.data(), text.size() - 1)));
  gpu.uuid = text.data();
  text = {};
  RETURN_IF_ERROR(nvml.Check("nvmlDeviceGetName", nvml.name(device, text.data(), text.size() - 1)));
  gpu.name = text.data();
  NvmlMemory memory;
  const int asked = nvml.memory(device, &memory);
  // GPUs that share the host's memory have no memory of their own.
  if (asked == kNvmlNotSupported) return gpu;
  RETURN_IF_ERROR(nvml.Check("nvmlDeviceGetMemoryInfo", asked));
  gpu.memory_bytes = memory.total;
  return gpu;
}

absl::StatusOr<std::vector<Gpu>> ReadAll(void* handle) {
  ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Load(handle));
  const int begun = nvml.init();
  if (begun == kNvmlDriverNotLoaded) return std::vector<Gpu>();
  RETURN_IF_ERROR(nvml.Check("nvmlInit", begun));
  const auto end = absl::MakeCleanup([&] { nvml.shutdown(); });
  unsigned count = 0;
  RETURN_IF_ERROR(nvml.Check("nvmlDeviceGetCount", nvml.count(&count)));
  std::vector<Gpu> gpus;
  for (unsigned index = 0; index < count; ++index) {
    ASSIGN_OR_RETURN(gpus.emplace_back(), Read(nvml, index));
  }
  return gpus;
}

}  // namespace

absl::StatusOr<std::vector<Gpu>> FindGpus(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return std::vector<Gpu>();
  const auto close = absl::MakeCleanup([&] { dlclose(handle); });
  auto gpus = ReadAll(handle);
  RETURN_IF_ERROR(Annotate(gpus.status(), library));
  return gpus;
}

std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus,
                             const std::optional<std::string>& visible) {
  if (!visible.has_value()) return gpus;
  std::vector<Gpu> selected;
  for (const auto& entry : absl::StrSplit(*visible, ',')) {
    const auto text = absl::StripAsciiWhitespace(entry);
    uint32_t index = 0;
    const bool number = absl::SimpleAtoi(text, &index);
    const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
      return number ? gpu.index == index : !text.empty() && absl::StartsWith(gpu.uuid, text);
    });
    if (found == gpus.end()) break;
    if (std::find(selected.begin(), selected.end(), *found) == selected.end()) {
      selected.push_back(*found);
    }
  }
  return selected;
}

}  // namespace muster::agent
