#include "worker/memory/resident.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace muster::memory {

uint64_t ResidentBytes() {
  // The file has numbers of pages: the address space, then its resident part.
  std::ifstream statm("/proc/self/statm");
  uint64_t space = 0;
  uint64_t resident = 0;
  if (!(statm >> space >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void ReturnFreedMemory() { malloc_trim(0); }

}  // namespace muster::memory
