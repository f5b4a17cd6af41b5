#include "worker/launcher/library_path.h"

#include <cstdlib>

namespace muster::launcher {
namespace {

constexpr char kPath[] = "LD_LIBRARY_PATH";
constexpr char kBefore[] = "MUSTER_LD_LIBRARY_PATH_BEFORE";

}  // namespace

void PutFirst(const std::string& folder) {
  const char* value = std::getenv(kPath);
  const std::string before = value != nullptr ? value : "";
  setenv(kBefore, before.c_str(), 1);
  setenv(kPath, (before.empty() ? folder : folder + ":" + before).c_str(), 1);
}

void Restore() {
  const char* value = std::getenv(kBefore);
  if (value == nullptr) return;
  if (*value == '\0') {
    unsetenv(kPath);
  } else {
    setenv(kPath, value, 1);
  }
  unsetenv(kBefore);
}

}  // namespace muster::launcher
