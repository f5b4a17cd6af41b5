#include "worker/checkpoint/node.h"

#include <string>

#include "common/files/files.h"

namespace muster::checkpoint {

std::string NodeId() {
  return files::ReadFile("/proc/sys/kernel/random/boot_id").value_or(std::string());
}

}  // namespace muster::checkpoint
