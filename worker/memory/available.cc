#include "worker/memory/available.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace muster::memory {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// Returns the number behind `name` in a file of lines "name number ...".
uint64_t NumberIn(const std::string& path, const std::string& name) {
  std::ifstream lines(path);
  std::string line;
  for (std::string word; lines >> word; std::getline(lines, line)) {
    uint64_t number = 0;
    if (word == name && lines >> number) return number;
  }
  return kUnknown;
}

// Returns the number that is the whole content of a file; unknown also for "max".
uint64_t NumberOf(const std::string& path) {
  uint64_t number = 0;
  return std::ifstream(path) >> number ? number : kUnknown;
}

// Returns the bytes that the limit of one group leaves.
uint64_t LeftIn(const std::string& group) {
  const uint64_t limit = NumberOf(group + "/memory.max");
  const uint64_t used = NumberOf(group + "/memory.current");
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  // Pages of files, which the kernel drops when memory is short.
  const uint64_t files = NumberIn(group + "/memory.stat", "inactive_file");
  const uint64_t needed = used - std::min(used, files == kUnknown ? 0 : files);
  return limit - std::min(limit, needed);
}

}  // namespace

uint64_t AvailableBytes(const std::string& proc, const std::string& cgroups) {
  const uint64_t kilobytes = NumberIn(proc + "/meminfo", "MemAvailable:");
  uint64_t available = kilobytes == kUnknown ? kUnknown : kilobytes * 1024;
  std::ifstream lines(proc + "/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    for (std::string path = line.substr(3); !path.empty(); path.resize(path.rfind('/'))) {
      available = std::min(available, LeftIn(cgroups + path));
    }
  }
  return available;
}

}  // namespace muster::memory
