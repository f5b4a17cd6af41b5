// Identifies the machine whose page cache serves the reads of this process.
#ifndef MUSTER_WORKER_CHECKPOINT_NODE_H_
#define MUSTER_WORKER_CHECKPOINT_NODE_H_

#include <string>

namespace muster::checkpoint {

// The kernel's boot id. Processes that share a kernel, and so its page cache, have the same one,
// whatever containers they are in; other machines have others. Empty if the kernel gives none.
std::string NodeId();

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_NODE_H_
