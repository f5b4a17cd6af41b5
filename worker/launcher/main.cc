// muster-worker as packages install it. It finds LibTorch, and becomes the worker for this
// LibTorch: muster-worker-cuda or muster-worker-cpu in lib/muster. This program does not link
// LibTorch. So its error says what is missing, where the dynamic loader would only name a file.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>

#include "common/status/status.h"
#include "worker/launcher/libtorch.h"

namespace {

constexpr int kFailed = 1;

std::string GetEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int Refuse(const std::string& why) {
  std::cerr << "muster-worker: " << why << std::endl;
  return kFailed;
}

}  // namespace

int main(int, char** argv) {
  std::error_code error;
  const std::filesystem::path programs =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto torch = muster::launcher::FindLibTorch({
      .version = MUSTER_TORCH_VERSION,
      .programs = programs.string(),
      .libtorch = GetEnvironment("LIBTORCH"),
      .ask_python = muster::launcher::TorchOfPython,
  });
  if (!torch.ok()) return Refuse(muster::Message(torch.status()));

  const std::filesystem::path folder = programs.parent_path() / "lib" / "muster";
  const std::filesystem::path cpu = folder / "muster-worker-cpu";
  const std::filesystem::path cuda = folder / "muster-worker-cuda";
  const bool has_cuda = std::filesystem::exists(cuda, error);
  if (has_cuda && !torch->cuda && !std::filesystem::exists(cpu, error)) {
    return Refuse("this package is for GPUs; the LibTorch in " + torch->folder +
                  " is built for the CPU only (docs/how-to/gpu.md)");
  }
  const std::string worker = has_cuda && torch->cuda ? cuda : cpu;
  // The path is absolute, because it also serves libraries that LibTorch loads later.
  muster::launcher::PutFirst(std::filesystem::absolute(torch->folder, error) / "lib");
  execv(worker.c_str(), argv);
  return Refuse(worker + " cannot be started: " + strerror(errno));
}
