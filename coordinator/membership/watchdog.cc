#include "coordinator/membership/watchdog.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::membership {
namespace {

// The number of collectives of each rank in a report.
constexpr size_t kShownCollectives = 3;
// The number of leases without progress after which ranks that wait for each other are reported.
constexpr int kLeasesOfMismatch = 2;
// The communicator of roll calls. Its operations have no fixed order relative to other
// communicators.
constexpr uint32_t kControl = 0;
// The communicator for files. Another thread of the worker issues its operations.
constexpr uint32_t kFiles = 3;

absl::Duration NoProgressLimit(const Watched& rank) {
  return rank.session_started ? rank.limits.no_progress : rank.limits.startup;
}

bool StandsStill(const Watched& rank, absl::Time now) {
  return !rank.silent && std::max(rank.moved, rank.waited) + NoProgressLimit(rank) <= now;
}

// Orders ranks by how likely they are at fault, the most likely first.
bool Before(const Watched& a, const Watched& b) {
  const auto key = [](const Watched& rank) {
    return std::make_tuple(rank.collectives->begun, rank.collectives->ended, rank.moved, rank.rank);
  };
  return key(a) < key(b);
}

// Returns whether all started sessions have begun a collective. A session begins with a roll call.
bool CountsCollectives(const std::vector<Watched>& ranks) {
  return std::none_of(ranks.begin(), ranks.end(), [](const Watched& rank) {
    return rank.session_started && rank.collectives->begun == 0;
  });
}

// Adds the newest collectives of a rank. Unfinished ones come last and have precedence, because
// another thread of the rank may have begun and ended many collectives after them.
void AddLast(const Watched& rank, std::vector<std::string>* out) {
  std::vector<std::string> ended, pending;  // newest first
  for (auto one = rank.collectives->newest.rbegin(); one != rank.collectives->newest.rend();
       ++one) {
    (one->ended ? ended : pending)
        .push_back(absl::StrCat("rank ", rank.rank, ": number ", one->number, ", ", one->name,
                                one->ended ? ", ended" : ", not ended"));
  }
  pending.resize(std::min(pending.size(), kShownCollectives));
  ended.resize(std::min(ended.size(), kShownCollectives - pending.size()));
  out->insert(out->end(), ended.rbegin(), ended.rend());
  out->insert(out->end(), pending.rbegin(), pending.rend());
}

std::string Counts(const Watched& rank) {
  return absl::StrCat("has begun ", rank.collectives->begun, " collectives and ended ",
                      rank.collectives->ended);
}

Hang Blame(const Watched& rank, const std::vector<Watched>& all, absl::Time now) {
  Hang hang{.rank = rank.rank};
  AddLast(rank, &hang.collectives);
  const std::string where =
      rank.progress.empty() ? std::string() : absl::StrCat(" (last: ", rank.progress, ")");
  const auto ahead =
      std::max_element(all.begin(), all.end(), [](const Watched& a, const Watched& b) {
        return std::tie(a.collectives->begun, b.rank) < std::tie(b.collectives->begun, a.rank);
      });
  const bool behind = ahead->collectives->begun > rank.collectives->begun;
  if (behind) AddLast(*ahead, &hang.collectives);
  const std::string others = behind ? absl::StrCat("; it is behind: it ", Counts(rank), ", rank ",
                                                   ahead->rank, " ", Counts(*ahead))
                                    : std::string();
  if (!rank.session_started) {
    hang.reason = absl::StrCat("did not start: no progress for ",
                               absl::FormatDuration(rank.limits.startup), where, others);
    return hang;
  }
  hang.reason = absl::StrCat("made no progress for ",
                             absl::FormatDuration(absl::Trunc(now - rank.moved, absl::Seconds(1))),
                             " at step ", rank.step, where, others);
  return hang;
}

// A collective that a rank has begun and not ended.
struct Pending {
  const Watched* rank = nullptr;
  const Collective* collective = nullptr;
};

std::vector<Pending> PendingOf(const Watched& rank) {
  std::vector<Pending> pending;
  if (rank.silent) return pending;
  for (const Collective& collective : rank.collectives->newest) {
    if (collective.ended || collective.of_communicator == 0) continue;
    pending.push_back({&rank, &collective});
  }
  return pending;
}

Hang Mismatch(const Pending& first, const Pending& second) {
  Hang hang{
      .rank = second.rank->rank,
      .reason = absl::StrCat("has begun ", second.collective->name, ", rank ", first.rank->rank,
                             " has begun ", first.collective->name,
                             " instead: the ranks call different collectives; with fsdp all ranks "
                             "must call the same units in the same order"),
      .permanent = true};
  AddLast(*second.rank, &hang.collectives);
  AddLast(*first.rank, &hang.collectives);
  return hang;
}

// Finds ranks in collectives with the same number of a communicator but different names.
std::optional<Hang> FindDifferentNames(const std::vector<Watched>& ranks) {
  std::map<std::pair<uint32_t, uint64_t>, Pending> by_number;  // of the first rank in each
  for (const Watched& rank : ranks) {
    for (const Pending& pending : PendingOf(rank)) {
      const Collective& own = *pending.collective;
      const Pending& first =
          by_number.try_emplace({own.communicator, own.of_communicator}, pending).first->second;
      if (first.collective->name != own.name) return Mismatch(first, pending);
    }
  }
  return std::nullopt;
}

// Returns the number of the newest collective of a communicator that a rank has begun; absent if
// unknown.
std::optional<uint64_t> NewestOf(uint32_t communicator, const Watched& rank) {
  const auto& newest = rank.collectives->newest;
  for (auto one = newest.rbegin(); one != newest.rend(); ++one) {
    if (one->communicator == communicator && one->of_communicator > 0) return one->of_communicator;
  }
  // All collectives of the rank are known if none was dropped from the list.
  return newest.empty() || newest.front().number > 1 ? std::nullopt : std::optional<uint64_t>(0);
}

// Returns the first pending collective of `rank` that `other` has not begun.
std::optional<Pending> AheadOf(const Watched& other, const Watched& rank) {
  for (const Pending& pending : PendingOf(rank)) {
    const uint32_t communicator = pending.collective->communicator;
    if (communicator == kControl || communicator == kFiles) continue;
    const auto reached = NewestOf(pending.collective->communicator, other);
    if (reached.has_value() && *reached < pending.collective->of_communicator) return pending;
  }
  return std::nullopt;
}

// Finds two ranks that wait for each other.
std::optional<Hang> FindMutualWait(const std::vector<Watched>& ranks, absl::Duration lease,
                                   absl::Time now) {
  std::vector<const Watched*> still;
  for (const Watched& rank : ranks) {
    if (!rank.silent && rank.moved + kLeasesOfMismatch * lease <= now) still.push_back(&rank);
  }
  // Each rank is only compared with the first rank, so that the cost grows linearly with the number
  // of ranks. Two ranks of which neither waits for the first rank are not found here.
  for (size_t i = 1; i < still.size(); ++i) {
    const auto ahead = AheadOf(*still[i], *still[0]);
    const auto behind = AheadOf(*still[0], *still[i]);
    if (ahead.has_value() && behind.has_value()) return Mismatch(*ahead, *behind);
  }
  return std::nullopt;
}

}  // namespace

std::vector<bool> WaitForOthers(const std::vector<Watched>& ranks, absl::Time now) {
  std::vector<bool> wait(ranks.size(), false);
  if (!CountsCollectives(ranks)) return wait;
  std::optional<uint64_t> fewest;  // collectives begun, of ranks that make progress
  for (const Watched& rank : ranks) {
    if (StandsStill(rank, now)) continue;
    fewest = std::min(fewest.value_or(rank.collectives->begun), rank.collectives->begun);
  }
  for (size_t i = 0; i < ranks.size() && fewest.has_value(); ++i) {
    wait[i] = ranks[i].collectives->begun > *fewest;
  }
  return wait;
}

std::optional<Hang> FindHang(const std::vector<Watched>& ranks, absl::Duration lease,
                             absl::Time now) {
  if (auto different = FindDifferentNames(ranks); different.has_value()) return different;
  if (auto mutual = FindMutualWait(ranks, lease, now); mutual.has_value()) return mutual;
  if (!CountsCollectives(ranks)) {
    const auto first =
        std::min_element(ranks.begin(), ranks.end(), [&](const Watched& a, const Watched& b) {
          return std::make_tuple(!StandsStill(a, now), a.moved) <
                 std::make_tuple(!StandsStill(b, now), b.moved);
        });
    if (first == ranks.end() || !StandsStill(*first, now)) return std::nullopt;
    return Blame(*first, ranks, now);
  }
  const auto last = std::min_element(ranks.begin(), ranks.end(), Before);
  if (last == ranks.end()) return std::nullopt;
  // Among ranks that are equally far behind, a rank that makes progress is no reason for the others
  // to wait.
  const Watched* blamed = nullptr;
  for (const Watched& rank : ranks) {
    if (rank.collectives->begun != last->collectives->begun || !StandsStill(rank, now)) continue;
    if (blamed == nullptr || Before(rank, *blamed)) blamed = &rank;
  }
  if (blamed == nullptr) return std::nullopt;
  return Blame(*blamed, ranks, now);
}

}  // namespace muster::membership
