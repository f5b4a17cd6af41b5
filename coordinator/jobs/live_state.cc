#include "coordinator/jobs/live_state.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/failure.h"

namespace muster::jobs {
namespace {

std::string Processes(size_t n) { return absl::StrCat(n, n == 1 ? " process" : " processes"); }

// Returns the names of the nodes for which the job waits, for people; empty if there are none.
std::string WaitsForNodes(const Job& job) {
  if (job.cut_off.empty()) return "";
  const std::string& first = *job.cut_off.begin();
  const std::string more =
      job.cut_off.size() > 1 ? absl::StrCat(" (and ", job.cut_off.size() - 1, " more)") : "";
  return absl::StrCat(
      "node '", first, "'", more,
      " is cut off; its ranks are not replaced until its agent is back, or `muster nodes "
      "forget ",
      first, "`");
}

// Returns a warning about ranks that have had no input for long; empty if there is none.
std::string JoinWarning(const Job& job) {
  // The number of steps without input after which there is a warning: the rank's device does no
  // useful work.
  constexpr uint64_t kLongJoin = 100;
  size_t count = 0;
  uint32_t longest = 0;
  for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
    const uint64_t since = job.ranks[rank].joined_since;
    if (since == 0 || job.step < since + kLongJoin - 1) continue;
    if (++count == 1 || since < job.ranks[longest].joined_since) longest = rank;
  }
  if (count == 0) return "";
  const std::string more =
      count > 1 ? absl::StrCat(", and ", count - 1, " more for a long time") : "";
  return absl::StrCat("rank ", longest, " has had no input since step ",
                      job.ranks[longest].joined_since, more);
}

// Returns the trouble of the first rank that cannot start, and how many more there are; empty if
// none.
std::string Trouble(const Job& job) {
  std::string first;
  size_t more = 0;
  for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
    const Rank& one = job.ranks[rank];
    if (one.trouble.empty()) continue;
    if (!first.empty()) {
      ++more;
    } else {
      first = absl::StrCat("rank ", rank, " on node '", one.node, "' ", one.trouble);
    }
  }
  if (more > 0) absl::StrAppend(&first, " (and ", more, more == 1 ? " rank more)" : " ranks more)");
  return first;
}

}  // namespace

std::string Warning(const Job& job) {
  const std::string saves = SaveWarning(job);
  const std::string joined = JoinWarning(job);
  return absl::StrCat(saves, saves.empty() || joined.empty() ? "" : "; ", joined);
}

void DescribeLive(Job* job) {
  const size_t left = job->ranks.size() - Count(*job, &Rank::exited);
  const size_t started = Count(*job, &Rank::session_started);
  const bool all_started = started == job->ranks.size();
  if (!job->stop_requested() && !job->ending()) {
    SettleWork(&job->phase, all_started);
  }
  job->reason_code.clear();
  const std::string interruption = job->interruption();
  if (job->stop_requested()) {
    job->state_reason = job->ending()    ? absl::StrCat("waits for ", Processes(left), " to end")
                        : job->time_up() ? absl::StrCat("its time_limit, ",
                                                        absl::FormatDuration(job->plan.time_limit),
                                                        ", is over; stops at the next step")
                                         : "stops at the next step";
  } else if (job->ending()) {
    const auto failure = OwnFailure(*job);
    std::string why = interruption.empty() ? "interrupted" : interruption;
    if (failure.has_value() && EndOf(*job) != End::kInterrupted) why = Describe(failure->root);
    job->state_reason = absl::StrCat(why, "; waits for ", Processes(left), " to end");
  } else if (job->state() == State::kPaused) {
    job->state_reason =
        interruption.empty()
            ? "as asked"
            : absl::StrCat(interruption, "; ends here and continues on other nodes");
  } else if (all_started && !interruption.empty()) {
    job->state_reason = absl::StrCat(
        interruption, WritesCheckpoints(*job)
                          ? "; saves a checkpoint at its next step and continues on other nodes"
                          : "; ends at its next step and starts again from step 0 on another node");
  } else if (all_started) {
    if (EndsByItself(*job)) {
      const auto failure = OwnFailure(*job);
      job->state_reason =
          absl::StrCat(failure.has_value() ? absl::StrCat(Describe(failure->root), "; ") : "",
                       "waits for the processes to exit");
    } else {
      job->state_reason = Warning(*job);
      if (job->save_failure.has_value()) job->reason_code = "SAVE_FAILED";
    }
  } else {
    job->state_reason = absl::StrCat(started, " of ", job->ranks.size(), " ranks are ready");
    if (const std::string trouble = Trouble(*job); !trouble.empty()) {
      absl::StrAppend(&job->state_reason, "; ", trouble);
      job->reason_code = kRanksCannotMeet;
    }
  }
  if (const std::string waits = WaitsForNodes(*job); !waits.empty()) {
    job->state_reason =
        job->state_reason.empty() ? waits : absl::StrCat(job->state_reason, "; ", waits);
  }
}

}  // namespace muster::jobs
