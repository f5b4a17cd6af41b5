#include "common/rpc/call_counts.h"

#include <algorithm>

namespace muster {

int CallCounts::BeyondOwn(const Count& count) const {
  return std::max(0, count.all() - limits_.own);
}

CallCounts::Verdict CallCounts::Begins(Connection connection, absl::Time now) {
  ForgetOld(now);
  const auto found = counts_.find(connection);
  const int all = found == counts_.end() ? 0 : found->second.all();
  if (all >= limits_.per_connection) return Verdict::kConnectionFull;
  if (all >= limits_.own) {
    int& shared = SharedBy(connection);
    if (shared >= limits_.shared) return Verdict::kAllFull;
    ++shared;
  }
  ++counts_[connection].begun;
  return Verdict::kAdmitted;
}

void CallCounts::Runs(Connection connection) {
  Count& count = counts_[connection];
  SharedBy(connection) -= BeyondOwn(count);
  if (count.begun_before > 0) {
    --count.begun_before;
  } else if (count.begun > 0) {
    --count.begun;
  }
  ++count.running;
  SharedBy(connection) += BeyondOwn(count);
}

void CallCounts::Ends(Connection connection) {
  const auto found = counts_.find(connection);
  if (found == counts_.end()) return;
  Count& count = found->second;
  SharedBy(connection) -= BeyondOwn(count);
  --count.running;
  SharedBy(connection) += BeyondOwn(count);
  if (count.all() == 0) counts_.erase(found);
}

void CallCounts::ForgetOld(absl::Time now) {
  if (now < period_ + limits_.forgotten_after) return;
  const bool all = now >= period_ + 2 * limits_.forgotten_after;
  period_ = now;
  absl::erase_if(counts_, [this, all](auto& entry) {
    Count& count = entry.second;
    int& shared = SharedBy(entry.first);
    shared -= BeyondOwn(count);
    count.begun_before = all ? 0 : count.begun;
    count.begun = 0;
    shared += BeyondOwn(count);
    return count.all() == 0;
  });
}

}  // namespace muster
