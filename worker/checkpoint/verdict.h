// The decision that follows from the results of all ranks that read one checkpoint. Pure: every
// rank makes the same decision from the same exchanged results, so all ranks issue the same
// collectives.
//
// A checkpoint does not count as damaged because one rank, or all ranks of one of several nodes,
// found damage: the page cache or the memory of that node may be damaged instead.
#ifndef MUSTER_WORKER_CHECKPOINT_VERDICT_H_
#define MUSTER_WORKER_CHECKPOINT_VERDICT_H_

#include <string>
#include <vector>

#include "worker/checkpoint/exchange.h"

namespace muster::checkpoint {

enum class Verdict {
  // All ranks read it.
  kWhole,
  // The ranks that did not read it read it again, from the disk; the others read what those could
  // not.
  kReadAgain,
  // The same after a pause, because an error such as EIO or ESTALE may be temporary.
  kReadAgainLater,
  // Some ranks read it: it is not damaged, and the nodes of the other ranks are at fault.
  kOthersReadIt,
  // No rank can read it, so it is not known whether it is damaged.
  kUnread,
  // No rank reads it, and ranks on two nodes found damage. Where all ranks are on one node: two
  // ranks (at world size 1: the rank) found the same damage in two reads, the second one from the
  // disk.
  kDamaged,
};

// What the ranks could not read in the last read. Each reads its own part, and what others could
// not read.
struct Comparison {
  // Every rank has tried everything that some rank could not read.
  bool complete = true;
  // There is something that no rank could read.
  bool common = true;
};

// No checkpoint is read more often.
inline constexpr int kMostReads = 3;

// `reads`: one read after the other, at least one, each with the results of all ranks; a rank that
// has read its part does not read it again. `nodes`: by rank, equal for ranks on one node.
Verdict Judge(const std::vector<std::vector<PartResult>>& reads,
              const std::vector<std::string>& nodes, const Comparison& last);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_VERDICT_H_
