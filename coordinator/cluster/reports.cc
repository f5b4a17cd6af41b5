// What follows from the reports of workers.
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/overloaded/overloaded.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/live_state.h"
#include "coordinator/jobs/saves.h"

namespace muster::cluster {
namespace {

// The number of trainability changes that are kept for each job.
constexpr size_t kKeptChanges = 200;

}  // namespace

absl::Status Cluster::WorkerReported(PeerStreamId session, const Report& report, absl::Time now) {
  const WorkerId* const worker = streams_.WorkerOf(session);
  if (worker == nullptr) return absl::OkStatus();
  const WorkerId id = *worker;
  membership_.WorkerHeard(id, now);
  jobs::Rank* rank = CurrentRank(id);
  if (options_.planted_fault == PlantedFault::kUnfencedCommit && rank == nullptr &&
      FindJob(id.job) != nullptr) {
    const auto* written = std::get_if<CheckpointWritten>(&report.what);
    if (written != nullptr) RecordCheckpoint(FindJob(id.job), *written, now);
  }
  if (rank == nullptr) return absl::OkStatus();
  jobs::Job* job = FindJob(id.job);
  if (report.sequence > rank->acked_report + 1) {
    MissesReports(job, id.rank, report.sequence - 1, now);
    return absl::OkStatus();
  }
  if (report.sequence == rank->acked_report + 1) {
    // The acknowledgement is sent before an order that may end the stream. For a checkpoint it is
    // sent last: it tells the worker that all orders that follow from the checkpoint were sent.
    const bool last = std::holds_alternative<CheckpointWritten>(report.what);
    if (!last) effects_.push_back(SendToWorker{session, AckReport{report.sequence}});
    TakeNext(job, id, report, now);
    if (last) effects_.push_back(SendToWorker{session, AckReport{report.sequence}});
  } else {
    effects_.push_back(SendToWorker{session, AckReport{rank->acked_report}});
  }
  return absl::OkStatus();
}

void Cluster::FollowsALaterState(jobs::Job* job, const std::string& what, absl::Time now) {
  restored_.KnowsMore(job->id);
  const jobs::Ended ended = jobs::OnInterrupted(
      job,
      absl::StrCat(what, " were acknowledged and are missing here: was the database restored?"),
      now);
  ListsChanged(job);
  ApplyJobChange(job, ended, now);
}

void Cluster::MissesReports(jobs::Job* job, uint32_t rank, uint64_t newest, absl::Time now) {
  FollowsALaterState(job,
                     absl::StrCat("reports ", job->ranks[rank].acked_report + 1, " to ", newest,
                                  " of rank ", rank),
                     now);
}

void Cluster::ReportsSpooled(PeerStreamId session, const WorkerId& worker,
                             const std::vector<Report>& reports, absl::Time now) {
  if (!AgentHeard(session, now)) return;
  const bool speaks = SpeaksFor(session, worker);
  // Its agent sends its reports, so the process does not count as lost.
  if (speaks) membership_.WorkerHeard(worker, now);
  bool gap = false;
  for (const Report& report : reports) {
    if (!speaks) break;
    jobs::Rank* rank = CurrentRank(worker);
    if (rank == nullptr) {
      TakeMeasured(worker, report);
      continue;
    }
    if (report.sequence <= rank->acked_report) continue;
    if (report.sequence > rank->acked_report + 1) {
      // The job cannot continue from these reports, but their measurements are stored.
      MissesReports(FindJob(worker.job), worker.rank, report.sequence - 1, now);
      gap = true;
    }
    if (gap) {
      TakeMeasured(worker, report);
      continue;
    }
    TakeNext(FindJob(worker.job), worker, report, now);
  }
  const uint64_t last = reports.empty() ? 0 : reports.back().sequence;
  effects_.push_back(SendToAgent{session, AckSpool{worker, last}});
}

void Cluster::TakeMeasured(const WorkerId& worker, const Report& report) {
  const jobs::Job* job = FindJob(worker.job);
  if (job == nullptr || worker.rank != 0 || worker.generation > job->generation) return;
  const bool current = worker.generation == job->generation && !job->ranks.empty();
  if (current && job->ranks[0].incarnation != worker.incarnation) return;
  // The store ignores a row that a newer generation has already written.
  std::visit(Overloaded{
                 [&](const StepDone& step) { StoreStep(job->id, worker.generation, step); },
                 [&](const Validated& validated) {
                   StoreValidation(job->id, worker.generation, validated);
                 },
                 // Nothing: they hold no measurement.
                 [](const OneOf<std::monostate, jobs::Rendezvous, SessionStarted, StageStarted,
                                StageFinished, CheckpointWritten, CheckpointFailed, CheckpointBad,
                                CheckpointsFound, CheckpointsRemoved, CommandApplied,
                                CommandFinished, TrainabilityReport, RanksJoined, ExportReady,
                                Exported, Notice, Finished, jobs::ReportedFailure> auto&) {},
             },
             report.what);
}

void Cluster::TakeNext(jobs::Job* job, const WorkerId& id, const Report& report, absl::Time now) {
  job->ranks[id.rank].acked_report = report.sequence;
  jobs_.RankChanged(id.job, id.rank);
  Take(job, id.rank, id, report, now);
}

void Cluster::Take(jobs::Job* job, uint32_t rank, const WorkerId& id, const Report& report,
                   absl::Time now) {
  jobs::Ended ended;
  std::visit(Overloaded{
                 [](const std::monostate&) {},  // ignored: a kind of a newer program
                 [&](const jobs::Rendezvous& rendezvous) {
                   job->rendezvous = rendezvous;
                   for (uint32_t r = 0; r < job->ranks.size(); ++r) SendToRank(*job, r, rendezvous);
                 },
                 [&](const SessionStarted& started) {
                   membership_.SessionStarted(id, now);
                   jobs::OnSessionStarted(job, rank, started.step);
                   if (jobs::SettleStart(job)) ListsChanged(job);
                   if (rank == 0) TakeStart(job, started, now);
                 },
                 [&](const StepDone& step) {
                   job->ranks[rank].step = step.step;
                   RecordStep(job, step);
                   jobs::OnStep(job);
                   // A job with checkpoints shows with its first one that its nodes are in order.
                   if (job->checkpoints.empty() && step.step == job->started_step + 1)
                     NodesWork(*job);
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
                   for (uint32_t r = 0; r < job->ranks.size(); ++r) jobs_.RankChanged(job->id, r);
                 },
                 [&](const Validated& validated) { RecordValidation(job, validated); },
                 [&](const CheckpointWritten& written) {
                   if (rank == 0) RecordCheckpoint(job, written, now);
                 },
                 [&](const CheckpointFailed& failed) {
                   jobs::OnSaveFailed(job, failed.step, failed.reason, now);
                   jobs::OnSave(job);
                 },
                 [&](const ExportReady& ready) { GrantExport(job, rank, ready.path); },
                 [&](const CheckpointsFound& found) {
                   if (rank == 0) TakeFound(job, found, now);
                 },
                 [&](const CheckpointsRemoved& removed) {
                   if (rank != 0) return;
                   jobs::Removed(job, removed.names);
                   ListsChanged(job);
                 },
                 [&](const CheckpointBad& bad) {
                   if (jobs::MarkBad(job, bad.path, bad.reason)) ListsChanged(job);
                   effects_.push_back(Say{absl::StrCat("job '", job->id, "': checkpoint ", bad.path,
                                                       " is damaged: ", bad.reason)});
                 },
                 [&](const CommandApplied& applied) { CommandTookEffect(job, applied, now); },
                 [&](const CommandFinished& finished) {
                   commands::Outcome outcome = finished.outcome;
                   outcome.time = now;
                   if (job->commands.Finished(finished.number, std::move(outcome)))
                     ListsChanged(job);
                 },
                 [&](const TrainabilityReport& report) { RecordTrainability(job, report, now); },
                 [&](const Exported& exported) {
                   job->exported_path = exported.path;
                   job->export_granted.clear();
                 },
                 [&](const Notice& notice) {
                   if (rank == 0)
                     jobs::TakeNotice(job, notice.reason, notice.message, notice.step, now);
                 },
                 [&](const Finished& finished) {
                   job->ranks[rank].step = finished.step;
                   if (rank == 0) job->ended_early = finished.ended_early;
                   jobs::OnFinished(job, rank, finished.preempted, options_.end_timeouts, now);
                 },
                 [&](const jobs::ReportedFailure& failure) {
                   if (failure.newer_generation > 0) restored_.KnowsMore(job->id);
                   ended = jobs::OnFailureReport(job, rank, failure, options_.end_timeouts, now);
                   ListsChanged(job);
                 },
             },
             report.what);
  const std::string warning = job->live ? jobs::Warning(*job) : "";
  if (std::exchange(job->warned, warning) != warning && !warning.empty()) {
    effects_.push_back(Say{absl::StrCat("job '", job->id, "': ", warning)});
  }
  ApplyJobChange(job, ended, now);
}

void Cluster::CommandTookEffect(jobs::Job* job, const CommandApplied& applied, absl::Time now) {
  if (!job->commands.Applied(applied.number, applied.step)) return;
  ListsChanged(job);
  const commands::Command& command = *job->commands.Find(applied.number);
  effects_.push_back(
      Say{absl::StrCat("job '", job->id, "': ", commands::Name(command.kind), " (operation ",
                       command.number, ") took effect after step ", applied.step)});
  if (command.kind == v1::Operation::STOP) {
    jobs::OnStopTookEffect(job, options_.end_timeouts, now);
  }
  const bool pauses = command.kind == v1::Operation::PAUSE;
  if (pauses || command.kind == v1::Operation::RESUME) jobs::OnPaused(job, pauses);
}

void Cluster::RecordTrainability(jobs::Job* job, const TrainabilityReport& report, absl::Time now) {
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
    history.back().time = now;
    if (history.size() > kKeptChanges) history.erase(history.begin());
  }
  ListsChanged(job);
}

void Cluster::RecordStep(jobs::Job* job, const StepDone& step) {
  job->step = step.step;
  job->newest_step = step.metrics;
  if (step.skipped) ++job->skipped_steps;
  auto& steps = jobs_.NotesOf(job->id).newest_steps;
  steps.push_back(step.metrics);
  if (steps.size() > kSpeedSteps) steps.pop_front();
  StoreStep(job->id, job->generation, step);
}

void Cluster::StoreStep(const std::string& job_id, uint64_t generation, const StepDone& step) {
  batch_.steps.push_back({job_id, step.step, generation, step.metrics});
  effects_.push_back(StepsChanged{job_id});
}

void Cluster::RecordValidation(jobs::Job* job, const Validated& validated) {
  const bool test = validated.data == Validated::Data::kTest;
  (test ? job->newest_test : job->newest_validation) = validated.summary;
  StoreValidation(job->id, job->generation, validated);
}

void Cluster::StoreValidation(const std::string& job_id, uint64_t generation,
                              const Validated& validated) {
  const bool test = validated.data == Validated::Data::kTest;
  (test ? batch_.tests : batch_.validations)
      .push_back({job_id, validated.step, generation, validated.metrics});
  effects_.push_back(StepsChanged{job_id});
}

void Cluster::GrantExport(jobs::Job* job, uint32_t rank, const std::string& path) {
  // A process that is being replaced must not overwrite the export of the one that replaces it.
  if (rank != 0 || !job->live || job->ending) return;
  job->export_granted = path;
  SendToRank(*job, 0, ExportGranted{path});
}

}  // namespace muster::cluster
