// What follows from what all ranks found of one checkpoint. Pure: every rank decides the same from
// the same exchanged results, so that their collectives stay balanced.
//
// One rank's bad read does not condemn, nor does one node's: its page cache or its memory may be
// what is bad.
#ifndef MUSTER_WORKER_CHECKPOINT_VERDICT_H_
#define MUSTER_WORKER_CHECKPOINT_VERDICT_H_

#include <string>
#include <vector>

#include "worker/checkpoint/exchange.h"

namespace muster::checkpoint {

enum class Verdict {
  // All ranks read it.
  kWhole,
  // The ranks that did not read it read it again, from the disk.
  kReadAgain,
  // The same after a while: an error such as EIO or ESTALE may be gone by then.
  kReadAgainLater,
  // Some ranks read it: it is whole, and the others' nodes are at fault.
  kOthersReadIt,
  // No rank reads it, which says nothing about it.
  kUnread,
  // No rank reads it, and ranks on two nodes found damage. Where all ranks are on one node: two
  // ranks (at world size 1: the rank) found the same damage in two reads, the second one from the
  // disk.
  kDamaged,
};

// No checkpoint is read more often.
inline constexpr int kMostReads = 3;

// `reads`: one read after the other, at least one, each with the results of all ranks; a rank that
// has read the checkpoint does not read it again, and its result stays. `nodes`: by rank, equal for
// ranks on one node.
Verdict Judge(const std::vector<std::vector<PartResult>>& reads,
              const std::vector<std::string>& nodes);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_VERDICT_H_
