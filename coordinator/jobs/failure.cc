#include "coordinator/jobs/failure.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::jobs {
namespace {

constexpr size_t kShownConsequences = 3;

// Returns the lowest number for the most certain kind. Reported failures, lost processes and faults
// of nodes are equally certain: the earliest of them counts.
int Uncertainty(const FailureNote& note) {
  const bool sure = note.kind == FailureKind::kReported || note.kind == FailureKind::kNodeFault;
  return static_cast<int>(sure ? FailureKind::kLost : note.kind);
}

// Returns whether `note` says that the silent process of `known` was lost with its agent.
bool Explains(const FailureNote& note, const FailureNote& known) {
  return note.kind == FailureKind::kNodeFault && known.kind == FailureKind::kLost;
}

}  // namespace

std::optional<Failure> RootCause(const std::vector<FailureNote>& notes) {
  const auto root = std::min_element(
      notes.begin(), notes.end(),
      [](const FailureNote& a, const FailureNote& b) { return Uncertainty(a) < Uncertainty(b); });
  if (root == notes.end()) return std::nullopt;
  Failure failure{.root = *root};
  size_t more = 0;
  for (auto note = notes.begin(); note != notes.end(); ++note) {
    if (note == root) continue;
    if (failure.consequences.size() < kShownConsequences) {
      failure.consequences.push_back(absl::StrCat("rank ", note->rank, ": ", note->reason));
    } else {
      ++more;
    }
  }
  if (more > 0) failure.consequences.push_back(absl::StrCat("and ", more, " more"));
  return failure;
}

FailureNote NoteFor(const Job& job, uint32_t rank, FailureKind kind, const std::string& reason) {
  return {.generation = job.generation,
          .rank = rank,
          .node = job.ranks[rank].node,
          .step = job.ranks[rank].step,
          .kind = kind,
          .reason = reason};
}

void AddNote(std::vector<FailureNote>* notes, FailureNote note) {
  std::erase_if(*notes, [&](const FailureNote& old) { return old.generation < note.generation; });
  const auto known = std::find_if(notes->begin(), notes->end(),
                                  [&](const FailureNote& old) { return old.rank == note.rank; });
  if (known == notes->end()) {
    notes->push_back(std::move(note));
    return;
  }
  if (Uncertainty(note) < Uncertainty(*known) || Explains(note, *known)) {
    if (note.log_tail.empty()) note.log_tail = known->log_tail;
    *known = std::move(note);
  } else if (known->log_tail.empty()) {
    known->log_tail = note.log_tail;
  }
}

void DropSilence(std::vector<FailureNote>* notes, uint64_t generation, uint32_t rank) {
  std::erase_if(*notes, [&](const FailureNote& note) {
    return note.generation == generation && note.rank == rank && note.kind == FailureKind::kLost &&
           note.collectives.empty() && !note.permanent;
  });
}

std::string Describe(const FailureNote& note) {
  return absl::StrCat("rank ", note.rank, " on node '", note.node, "': ", note.reason);
}

namespace {

// Returns "killed by signal 11 (SIGSEGV)". For SIGKILL also the usual cause.
std::string KilledBy(int signal) {
  const char* name = sigabbrev_np(signal);
  const std::string number = absl::StrCat("killed by signal ", signal);
  if (name == nullptr) return number;
  return absl::StrCat(number, " (SIG", name,
                      signal == SIGKILL ? "; perhaps the memory was used up)" : ")");
}

}  // namespace

FailureNote NoteForExit(const Job& job, uint32_t rank, const Exit& exit) {
  const bool with_its_agent = EndedWithItsAgent(exit);
  FailureNote note;
  switch (exit.cause) {
    case Exit::Cause::kSignal:
      note = NoteFor(job, rank, FailureKind::kLost,
                     with_its_agent ? "ended with its agent" : KilledBy(exit.number));
      break;
    case Exit::Cause::kStartError:
      note = NoteFor(job, rank, FailureKind::kNodeFault,
                     absl::StrCat("could not be started: ", exit.start_error));
      break;
    case Exit::Cause::kCode:
      note = NoteFor(job, rank, FailureKind::kExitCode,
                     absl::StrCat("exited with code ", exit.number,
                                  job.ranks[rank].attached ? " before it finished" : ""));
      break;
  }
  if (exit.why == Exit::Why::kNodeFault) note.kind = FailureKind::kNodeFault;
  if (!job.ranks[rank].attached && !with_its_agent) note.code = kWorkerDidNotStart;
  if (!job.ranks[rank].attached && note.kind != FailureKind::kNodeFault) {
    note.kind = FailureKind::kNodeFault;
    absl::StrAppend(&note.reason, ", before it attached to the coordinator");
  }
  note.log_tail = exit.log_tail;
  return note;
}

bool EndedAsTold(const Job& job, const Exit& exit, absl::Duration kill_timeout, absl::Time now) {
  const std::optional<absl::Time> told = ToldToEnd(job.phase);
  if (!told.has_value()) return false;
  switch (exit.cause) {
    case Exit::Cause::kStartError:
      return true;
    case Exit::Cause::kSignal:
      return exit.number == SIGTERM || (exit.number == SIGKILL && now - *told >= kill_timeout);
    case Exit::Cause::kCode:
      return true;
  }
  return false;
}

std::string PlannedEnd(const std::string& node, Exit::Why why) {
  switch (why) {
    case Exit::Why::kAgentStopped:
      return absl::StrCat("the agent of node '", node, "' was stopped");
    case Exit::Why::kDrained:
      return absl::StrCat("node '", node, "' is drained");
    case Exit::Why::kLeaseOver:
      return absl::StrCat("node '", node, "' heard nothing from the coordinator for a whole lease");
    case Exit::Why::kStoppedAsTold:
    case Exit::Why::kUnknown:
    case Exit::Why::kNodeFault:
      break;
  }
  return absl::StrCat("a process on node '", node, "' was stopped");
}

}  // namespace muster::jobs
