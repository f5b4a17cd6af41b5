#include "worker/checkpoint/verdict.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace muster::checkpoint {
namespace {

bool IsGood(const PartResult& result) { return result.ok(); }

bool IsDamage(const PartResult& result) { return absl::IsDataLoss(result.status()); }

// True if another read may succeed. A missing file, or a file of a newer program, gives the same
// result again.
bool MayPass(const PartResult& result) {
  return !result.ok() && !IsDamage(result) && !absl::IsNotFound(result.status()) &&
         !absl::IsUnimplemented(result.status());
}

bool OnOneNode(const std::vector<std::string>& nodes) {
  return std::set<std::string>(nodes.begin(), nodes.end()).size() == 1;
}

size_t NodesWithDamage(const std::vector<PartResult>& results,
                       const std::vector<std::string>& nodes) {
  std::set<std::string> found;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (IsDamage(results[rank])) found.insert(nodes[rank]);
  }
  return found.size();
}

// The number of ranks that found the same damage in the last two reads. Defective memory gives
// another hash in each read.
size_t RanksWithTheSameDamage(const std::vector<std::vector<PartResult>>& reads) {
  if (reads.size() < 2) return 0;
  const std::vector<PartResult>& before = reads[reads.size() - 2];
  const std::vector<PartResult>& last = reads.back();
  size_t ranks = 0;
  for (size_t rank = 0; rank < last.size(); ++rank) {
    if (IsDamage(last[rank]) && last[rank].status() == before[rank].status()) ++ranks;
  }
  return ranks;
}

}  // namespace

Verdict Judge(const std::vector<std::vector<PartResult>>& reads,
              const std::vector<std::string>& nodes, const Comparison& comparison) {
  const std::vector<PartResult>& last = reads.back();
  const bool may_read_again = reads.size() < static_cast<size_t>(kMostReads);
  if (std::all_of(last.begin(), last.end(), IsGood)) return Verdict::kWhole;
  if (may_read_again && std::any_of(last.begin(), last.end(), MayPass)) {
    return Verdict::kReadAgainLater;
  }
  const Verdict unclear = may_read_again ? Verdict::kReadAgain : Verdict::kUnread;
  if (!comparison.complete) return unclear;
  if (std::any_of(last.begin(), last.end(), IsGood)) return Verdict::kOthersReadIt;
  // Each of several ranks failed at a block that another rank read.
  if (!comparison.common) return unclear;
  const size_t nodes_with_damage = NodesWithDamage(last, nodes);
  if (nodes_with_damage == 0) return Verdict::kUnread;
  if (!OnOneNode(nodes)) return nodes_with_damage > 1 ? Verdict::kDamaged : Verdict::kUnread;
  if (RanksWithTheSameDamage(reads) >= std::min<size_t>(2, last.size())) return Verdict::kDamaged;
  return may_read_again ? Verdict::kReadAgain : Verdict::kUnread;
}

}  // namespace muster::checkpoint
