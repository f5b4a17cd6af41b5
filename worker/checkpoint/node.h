// Which machine this is, as far as reading files goes.
#ifndef MUSTER_WORKER_CHECKPOINT_NODE_H_
#define MUSTER_WORKER_CHECKPOINT_NODE_H_

#include <string>

namespace muster::checkpoint {

// The kernel's boot id. Processes that share a kernel, and so its page cache, have the same one,
// whatever containers they are in; other machines have others. Empty where the kernel tells none.
std::string NodeId();

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_NODE_H_
