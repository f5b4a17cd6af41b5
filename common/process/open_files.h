// How many files and connections this process may have open.
#ifndef MUSTER_COMMON_PROCESS_OPEN_FILES_H_
#define MUSTER_COMMON_PROCESS_OPEN_FILES_H_

#include <cstddef>

namespace muster::process {

// Lets this process have as many open files as it may. The result is how many that are.
size_t RaiseOpenFiles();

}  // namespace muster::process

#endif  // MUSTER_COMMON_PROCESS_OPEN_FILES_H_
