#include "worker/control/worker_end.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/status/status.h"
#include "common/steady/now.h"
#include "common/utf8/utf8.h"
#include "worker/checkpoint/epoch.h"

namespace muster::control {
namespace {

// The longest wait of a process that ends early for the coordinator's answer.
constexpr absl::Duration kAnswersWithin = absl::Seconds(2);

}  // namespace

v1::WorkerReport EndReport(const WorkerEnd& end) {
  v1::WorkerReport report;
  if (end.error.ok()) {
    report.mutable_finished()->set_step(end.end.step);
    report.mutable_finished()->set_ended_early(end.end.ended_early);
    report.mutable_finished()->set_preempted(end.end.preempted);
    return report;
  }
  v1::WorkerFailure& failure = *report.mutable_failure();
  failure.set_step(end.end.step);
  failure.set_reason(ValidUtf8(Message(end.error)));
  failure.set_consequence(end.kind == train::FailureKind::kConsequence);
  failure.set_permanent(end.kind == train::FailureKind::kPermanent);
  const train::Cause cause = train::CauseOf(end.error);
  failure.set_kind(static_cast<v1::WorkerFailure::Kind>(cause));
  failure.set_epoch_found(checkpoint::NewerGeneration(end.error).value_or(0));
  return report;
}

void ReportEnd(ControlStream& stream, WorkerEnd& end) {
  if (std::exchange(end.reported, true)) return;
  const bool failed = !end.error.ok();
  if (failed) {
    spdlog::error("{}", Message(end.error));
  } else {
    spdlog::info("{} after step {}",
                 end.end.preempted ? "ended to continue elsewhere,"
                 : end.end.stopped ? "stopped"
                                   : "finished",
                 end.end.step);
    if (!end.end.ended_early.empty()) spdlog::warn("{}", end.end.ended_early);
  }
  stream.Report(EndReport(end));
  const absl::Status flushed = failed ? stream.Flush(kAnswersWithin)
                                      : FlushUnlessPreempted(stream, absl::InfiniteDuration());
  if (flushed.ok()) return;
  spdlog::warn("{}", Message(flushed));
  // The agent sends the reports in its spool.
  if (!failed) stream.AwaitAcknowledged(kAnswersWithin);
}

absl::Status FlushUnlessPreempted(ControlStream& stream, absl::Duration timeout) {
  const absl::Time end = SteadyNow() + timeout;
  while (true) {
    const absl::Status flushed = stream.Flush(std::min(kAnswersWithin, end - SteadyNow()));
    if (flushed.ok() || stream.Preempted() || SteadyNow() >= end) return flushed;
  }
}

}  // namespace muster::control
