#include "coordinator/jobs/exit.h"

#include <signal.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/failure.h"

namespace muster::jobs {

FailureNote NoteForExit(const Job& job, uint32_t rank, const Exit& exit) {
  FailureNote note;
  switch (exit.cause) {
    case Exit::Cause::kSignal:
      note = NoteFor(job, rank, FailureKind::kLost, absl::StrCat("killed by signal ", exit.number));
      break;
    case Exit::Cause::kStartError:
      note = NoteFor(job, rank, FailureKind::kNodeFault,
                     absl::StrCat("could not be started: ", exit.start_error));
      break;
    case Exit::Cause::kCode:
      note = NoteFor(job, rank, FailureKind::kExitCode,
                     absl::StrCat("exited with code ", exit.number, " before it finished"));
      break;
  }
  if (exit.why == Exit::Why::kNodeFault) note.kind = FailureKind::kNodeFault;
  const bool with_its_agent =
      exit.why == Exit::Why::kNodeFault && exit.cause == Exit::Cause::kSignal;
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
