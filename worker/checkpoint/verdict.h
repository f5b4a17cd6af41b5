// The decision that follows from the results of all ranks that read one checkpoint. Pure: every
// rank decides the same from the same exchanged results, so all ranks issue the same collectives.
//
// Damage that one rank, or all ranks of one of several nodes, found does not make a checkpoint
// damaged. The page cache or the memory of this node may be damaged instead.
#ifndef MUSTER_WORKER_CHECKPOINT_VERDICT_H_
#define MUSTER_WORKER_CHECKPOINT_VERDICT_H_

#include <string>
#include <vector>

#include "worker/checkpoint/exchange.h"

namespace muster::checkpoint {

enum class Verdict {
  // All ranks read the checkpoint.
  kWhole,
  // Ranks whose read failed read their part again, from the disk. The other ranks read the blocks
  // that failed.
  kReadAgain,
  // The same reads as for kReadAgain, after a pause, because an error such as EIO or ESTALE may be
  // temporary.
  kReadAgainLater,
  // Some ranks read everything: the checkpoint is not damaged, and the nodes of the other ranks are
  // at fault.
  kOthersReadIt,
  // No rank can read the checkpoint, which may be damaged or not.
  kUnread,
  // No rank reads the checkpoint, and ranks on two nodes found damage. Where all ranks are on one
  // node: two ranks (at world size 1: the rank) found the same damage in two reads, the second one
  // from the disk.
  kDamaged,
};

// A comparison of the blocks that the ranks could not read in the last read. Each rank reads its
// own part, and the blocks that others could not read.
struct Comparison {
  // True if every rank has tried all blocks that some rank could not read.
  bool complete = true;
  // True if there is a block that no rank could read.
  bool common = true;
};

// The largest number of reads of a checkpoint.
inline constexpr int kMostReads = 3;

// `reads`: the results of all ranks for each read, at least one, in order. A rank that has read its
// part does not read the part again. `nodes`: by rank, equal for ranks on one node.
Verdict Judge(const std::vector<std::vector<PartResult>>& reads,
              const std::vector<std::string>& nodes, const Comparison& last);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_VERDICT_H_
