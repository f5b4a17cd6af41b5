#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/overloaded/overloaded.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/cluster/handlers/handlers.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/live_state.h"

namespace muster::cluster {
namespace {

// The number of trainability changes that are kept for each job.
constexpr size_t kKeptChanges = 200;

void StoreStep(HandlerContext& context, const std::string& job_id, uint64_t generation,
               const StepDone& step) {
  context.batch.steps.push_back({job_id, step.step, generation, step.metrics});
  context.effects.push_back(StepsChanged{job_id});
}

void StoreValidation(HandlerContext& context, const std::string& job_id, uint64_t generation,
                     const Validated& validated) {
  const bool test = validated.data == Validated::Data::kTest;
  (test ? context.batch.tests : context.batch.validations)
      .push_back({job_id, validated.step, generation, validated.metrics});
  context.effects.push_back(StepsChanged{job_id});
}

void RecordStep(HandlerContext& context, jobs::Job* job, const StepDone& step) {
  job->step = step.step;
  job->newest_step = step.metrics;
  if (step.skipped) ++job->skipped_steps;
  auto& steps = context.jobs.NotesOf(job->id).newest_steps;
  steps.push_back(step.metrics);
  if (steps.size() > kSpeedSteps) steps.pop_front();
  StoreStep(context, job->id, job->generation, step);
}

void RecordValidation(HandlerContext& context, jobs::Job* job, const Validated& validated) {
  const bool test = validated.data == Validated::Data::kTest;
  (test ? job->newest_test : job->newest_validation) = validated.summary;
  StoreValidation(context, job->id, job->generation, validated);
}

void RecordTrainability(HandlerContext& context, jobs::Job* job, const TrainabilityReport& report) {
  jobs::Trainability& trainability = job->trainability;
  trainability.version = report.version;
  trainability.in_force = report.in_force;
  if (!report.parameters.empty()) trainability.parameters = report.parameters;
  if (report.change.has_value()) {
    auto& history = trainability.history;
    // A job that continues from an earlier checkpoint makes the later versions again.
    std::erase_if(history, [&](const jobs::TrainabilityChange& change) {
      return change.version >= report.version;
    });
    history.push_back(*report.change);
    history.back().generation = job->generation;
    history.back().time = context.now;
    if (history.size() > kKeptChanges) history.erase(history.begin());
  }
  context.jobs.ListsChanged(*job);
}

void CommandTookEffect(HandlerContext& context, jobs::Job* job, const CommandApplied& applied) {
  if (!job->commands.Applied(applied.number, applied.step)) return;
  context.jobs.ListsChanged(*job);
  const commands::Command& command = *job->commands.Find(applied.number);
  context.Log(absl::StrCat("job '", job->id, "': ", commands::Name(command.kind), " (operation ",
                           command.number, ") took effect after step ", applied.step));
  if (command.kind == v1::Operation::STOP) {
    jobs::OnStopTookEffect(job, context.options.end_timeouts, context.now);
  }
  const bool pauses = command.kind == v1::Operation::PAUSE;
  if (pauses || command.kind == v1::Operation::RESUME) jobs::OnPaused(job, pauses);
}

// Allows rank 0 of the current generation to rename its weights to their final path. The permission
// is durable before rank 0 is told.
void GrantExport(HandlerContext& context, jobs::Job* job, uint32_t rank, const std::string& path) {
  // A process that is being replaced must not overwrite the export of its successor.
  if (rank != 0 || !job->live() || job->ending()) return;
  job->alive()->export_granted = path;
  SendToRank(context, *job, 0, ExportGranted{path});
}

void Take(HandlerContext& context, jobs::Job* job, uint32_t rank, const WorkerId& id,
          const Report& report) {
  jobs::RanksToEnd ended;
  std::visit(
      Overloaded{
          [](const std::monostate&) {},  // ignored: a kind of a newer program
          [&](const jobs::Rendezvous& rendezvous) {
            job->alive()->rendezvous = rendezvous;
            for (uint32_t r = 0; r < job->ranks.size(); ++r)
              SendToRank(context, *job, r, rendezvous);
          },
          [&](const SessionStarted& started) {
            context.membership.SessionStarted(id, context.now);
            jobs::OnSessionStarted(job, rank, started.step);
            if (jobs::SettleStart(job)) context.jobs.ListsChanged(*job);
            if (rank == 0) TakeStart(context, job, started);
          },
          [&](const StepDone& step) {
            job->ranks[rank].step = step.step;
            RecordStep(context, job, step);
            jobs::OnStep(job);
            // The first checkpoint shows that the nodes work, if a job writes checkpoints.
            if (job->checkpoints.empty() && step.step == job->started_step + 1)
              NodesWork(context, *job);
          },
          [&](const StageStarted& stage) {
            job->stage = stage.stage;
            job->step = stage.step;
          },
          [&](const StageFinished& finished) {
            if (rank != 0) return;
            job->stages_done = finished.stages_done;
            job->stages_done_step = finished.step;
          },
          [&](const RanksJoined& joined) {
            jobs::OnRanksJoined(job, joined.since);
            for (uint32_t r = 0; r < job->ranks.size(); ++r) context.jobs.RankChanged(job->id, r);
          },
          [&](const Validated& validated) { RecordValidation(context, job, validated); },
          [&](const CheckpointWritten& written) {
            if (rank == 0) RecordCheckpoint(context, job, written);
          },
          [&](const CheckpointFailed& failed) {
            jobs::OnSaveFailed(job, failed.step, failed.reason, context.now);
            jobs::OnSave(job);
          },
          [&](const ExportReady& ready) { GrantExport(context, job, rank, ready.path); },
          [&](const CheckpointsFound& found) {
            if (rank == 0) TakeFound(context, job, found);
          },
          [&](const CheckpointsRemoved& removed) {
            if (rank != 0) return;
            jobs::Removed(job, removed.names);
            context.jobs.ListsChanged(*job);
          },
          [&](const CheckpointBad& bad) {
            if (jobs::MarkBad(job, bad.path, bad.reason)) context.jobs.ListsChanged(*job);
            context.Log(absl::StrCat("job '", job->id, "': checkpoint ", bad.path,
                                     " is damaged: ", bad.reason));
          },
          [&](const CommandApplied& applied) { CommandTookEffect(context, job, applied); },
          [&](const CommandFinished& finished) {
            commands::Outcome outcome = finished.outcome;
            outcome.time = context.now;
            if (job->commands.Finished(finished.number, std::move(outcome)))
              context.jobs.ListsChanged(*job);
          },
          [&](const TrainabilityReport& report) { RecordTrainability(context, job, report); },
          [&](const Exported& exported) {
            job->exported_path = exported.path;
            job->alive()->export_granted.clear();
          },
          [&](const Notice& notice) {
            if (rank == 0)
              jobs::TakeNotice(job, notice.reason, notice.message, notice.step, context.now);
          },
          [&](const Finished& finished) {
            job->ranks[rank].step = finished.step;
            if (rank == 0) job->alive()->ended_early = finished.ended_early;
            jobs::OnFinished(job, rank, finished.preempted, context.options.end_timeouts,
                             context.now);
          },
          [&](const jobs::ReportedFailure& failure) {
            if (failure.newer_generation > 0) context.restored.KnowsMore(job->id);
            ended = jobs::OnFailureReport(job, rank, failure, context.options.end_timeouts,
                                          context.now);
            context.jobs.ListsChanged(*job);
          },
      },
      report.what);
  const std::string warning = job->live() ? jobs::Warning(*job) : "";
  if (std::exchange(job->warned, warning) != warning && !warning.empty()) {
    context.Log(absl::StrCat("job '", job->id, "': ", warning));
  }
  ApplyJobChange(context, job, ended);
}

// Applies the next report of the process `id`.
void TakeNext(HandlerContext& context, jobs::Job* job, const WorkerId& id, const Report& report) {
  job->ranks[id.rank].acked_report = report.sequence;
  context.jobs.RankChanged(id.job, id.rank);
  Take(context, job, id.rank, id, report);
}

// Stores measurements that a former rank 0 has left, of steps that are not computed again. The next
// generation reports all other steps itself and replaces their rows.
void TakeMeasured(HandlerContext& context, const WorkerId& worker, const Report& report) {
  const jobs::Job* job = context.jobs.Find(worker.job);
  if (job == nullptr || worker.rank != 0 || worker.generation > job->generation) return;
  const bool current = worker.generation == job->generation && !job->ranks.empty();
  if (current && job->ranks[0].incarnation != worker.incarnation) return;
  // The store ignores this row if a newer generation has already written the step.
  std::visit(
      Overloaded{
          [&](const StepDone& step) { StoreStep(context, job->id, worker.generation, step); },
          [&](const Validated& validated) {
            StoreValidation(context, job->id, worker.generation, validated);
          },
          // These reports have no measurement.
          [](const OneOf<std::monostate, jobs::Rendezvous, SessionStarted, StageStarted,
                         StageFinished, CheckpointWritten, CheckpointFailed, CheckpointBad,
                         CheckpointsFound, CheckpointsRemoved, CommandApplied, CommandFinished,
                         TrainabilityReport, RanksJoined, ExportReady, Exported, Notice, Finished,
                         jobs::ReportedFailure> auto&) {},
      },
      report.what);
}

}  // namespace

absl::Status WorkerReported(HandlerContext& context, PeerStreamId stream, const Report& report) {
  const WorkerId* const worker = context.streams.WorkerOf(stream);
  if (worker == nullptr) return absl::OkStatus();
  const WorkerId id = *worker;
  context.membership.WorkerHeard(id, context.now);
  jobs::Rank* rank = context.jobs.CurrentRank(id);
  if (context.options.planted_fault == PlantedFault::kUnfencedCommit && rank == nullptr &&
      context.jobs.Find(id.job) != nullptr) {
    const auto* written = std::get_if<CheckpointWritten>(&report.what);
    if (written != nullptr) RecordCheckpoint(context, context.jobs.Find(id.job), *written);
  }
  if (rank == nullptr) return absl::OkStatus();
  jobs::Job* job = context.jobs.Find(id.job);
  if (report.sequence > rank->acked_report + 1) {
    EndForLostReports(context, job, id.rank, report.sequence - 1);
    return absl::OkStatus();
  }
  if (report.sequence == rank->acked_report + 1) {
    // The acknowledgement is sent before an order that may end the stream. The acknowledgement of a
    // checkpoint is sent last: it tells the worker that all orders that follow from the checkpoint
    // were sent.
    const bool last = std::holds_alternative<CheckpointWritten>(report.what);
    if (!last) context.effects.push_back(SendToWorker{stream, AckReport{report.sequence}});
    TakeNext(context, job, id, report);
    if (last) context.effects.push_back(SendToWorker{stream, AckReport{report.sequence}});
  } else {
    context.effects.push_back(SendToWorker{stream, AckReport{rank->acked_report}});
  }
  return absl::OkStatus();
}

void Handle(HandlerContext& context, PeerStreamId stream, const SpooledReports& spooled) {
  const auto& [worker, reports] = spooled;
  if (!AgentHeard(context, stream)) return;
  const bool speaks = SpeaksFor(context, stream, worker);
  // The agent sends reports of the process, so the process does not count as lost.
  if (speaks) context.membership.WorkerHeard(worker, context.now);
  bool gap = false;
  for (const Report& report : reports) {
    if (!speaks) break;
    jobs::Rank* rank = context.jobs.CurrentRank(worker);
    if (rank == nullptr) {
      TakeMeasured(context, worker, report);
      continue;
    }
    if (report.sequence <= rank->acked_report) continue;
    if (!gap && report.sequence > rank->acked_report + 1) {
      // The job cannot continue from these reports, but their measurements are stored.
      EndForLostReports(context, context.jobs.Find(worker.job), worker.rank, report.sequence - 1);
      gap = true;
    }
    if (gap) {
      TakeMeasured(context, worker, report);
      continue;
    }
    TakeNext(context, context.jobs.Find(worker.job), worker, report);
  }
  const uint64_t last = reports.empty() ? 0 : reports.back().sequence;
  context.effects.push_back(SendToAgent{stream, AckSpool{worker, last}});
}

}  // namespace muster::cluster
