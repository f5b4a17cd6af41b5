// Reading the SQLite store.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_split.h"
#include "common/status/status.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/statement.h"

namespace muster::store {
namespace {

// SQLite stores a NaN as null.
double NanWhenAbsent(std::optional<double> value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

absl::StatusOr<Image> SqliteStore::Load() {
  std::map<std::string, jobs::Job> jobs;
  std::map<uint64_t, std::string> order;
  Statement rows(db_, &statements_, "SELECT * FROM jobs");
  while (rows.Next()) {
    jobs::Job job;
    job.id = rows.Text();
    job.number = rows.Uint();
    job.spec = rows.Text();
    job.plan.world_size = static_cast<uint32_t>(rows.Uint());
    job.plan.total_steps = rows.Uint();
    job.plan.max_restarts = static_cast<uint32_t>(rows.Uint());
    job.plan.keep_checkpoints = static_cast<uint32_t>(rows.Uint());
    job.state = static_cast<jobs::State>(rows.Int());
    job.state_reason = rows.Text();
    job.version_ceiling = rows.Uint();
    job.version = job.version_ceiling;
    job.create_time = rows.Time();
    job.start_time = rows.Time();
    job.end_time = rows.Time();
    job.generation = rows.Uint();
    job.live = rows.Bool();
    job.ending = rows.Bool();
    job.stop_requested = rows.Bool();
    job.restarts = static_cast<uint32_t>(rows.Uint());
    if (!rows.SkipNull()) {
      job.rendezvous.emplace();
      job.rendezvous->host = rows.Text();
      job.rendezvous->port = static_cast<uint32_t>(rows.Uint());
    } else {
      rows.SkipNull();
    }
    job.stage = rows.Text();
    job.step = rows.Uint();
    job.loss = rows.OptionalDouble();
    job.validation_loss = rows.OptionalDouble();
    job.validation_step = rows.Uint();
    job.exported_path = rows.Text();
    job.log_sequence = rows.Uint();
    job.perplexity = rows.OptionalDouble();
    job.grad_norm = rows.OptionalDouble();
    job.validation_accuracy = rows.OptionalDouble();
    job.validation_perplexity = rows.OptionalDouble();
    job.skipped_steps = rows.Uint();
    job.plan.priority = static_cast<int32_t>(rows.Int());
    job.paused = rows.Bool();
    job.ended_early = rows.Text();
    job.reason_code = rows.Text();
    if (!rows.SkipNull()) {
      jobs::SaveFailure& failure = job.save_failure.emplace();
      failure.step = rows.Uint();
      failure.message = rows.Text();
      failure.time = rows.Time();
      failure.count = static_cast<uint32_t>(rows.Uint());
    } else {
      rows.SkipNull();
      rows.SkipNull();
      rows.SkipNull();
    }
    job.export_granted = rows.Text();
    if (!rows.SkipNull()) job.plan.no_progress = absl::Nanoseconds(rows.Int());
    if (!rows.SkipNull()) job.plan.startup = absl::Nanoseconds(rows.Int());
    job.newest_generation_seen = rows.Uint();
    job.halt_reason = rows.Text();
    job.from_scratch = rows.Bool();
    job.start_from = rows.Text();
    job.plan.continue_when_cut_off = rows.Bool();
    job.interruption = rows.Text();
    job.preempted = rows.Bool();
    job.restarts_used = static_cast<uint32_t>(rows.Uint());
    job.node_faults = static_cast<uint32_t>(rows.Uint());
    job.failed_step = rows.Uint();
    job.started_step = rows.Uint();
    job.not_before = rows.Time();
    job.attempt = static_cast<uint32_t>(rows.Uint());
    if (!rows.SkipNull()) job.plan.time_limit = absl::Microseconds(rows.Int());
    job.time_used = absl::Microseconds(rows.Int());
    job.live_since = rows.Time();
    job.time_up = rows.Bool();
    order[job.number] = job.id;
    jobs[job.id] = std::move(job);
  }
  RETURN_IF_ERROR(Annotate(rows.status(), path_));
  RETURN_IF_ERROR(Annotate(LoadLists(&jobs), path_));

  Image image;
  for (const auto& [number, id] : order) image.jobs.push_back(std::move(jobs[id]));
  Statement nodes(db_, &statements_, "SELECT * FROM nodes ORDER BY node");
  while (nodes.Next()) {
    NodeRow row;
    row.node = nodes.Text();
    row.incarnation = nodes.Text();
    row.host = nodes.Text();
    row.slots = static_cast<uint32_t>(nodes.Uint());
    image.nodes.push_back(row);
  }
  RETURN_IF_ERROR(Annotate(nodes.status(), path_));
  Statement marks(db_, &statements_, "SELECT * FROM node_marks ORDER BY node");
  while (marks.Next()) {
    NodeMarkRow row;
    row.node = marks.Text();
    row.cordoned = marks.Bool();
    row.drained = marks.Bool();
    row.reason = marks.Text();
    row.agent_id = marks.Text();
    row.incarnations = absl::StrSplit(marks.Text(), ' ', absl::SkipEmpty());
    row.left_out.until = marks.Time();
    row.left_out.reason = marks.Text();
    row.left_out.times = static_cast<uint32_t>(marks.Uint());
    if (!marks.SkipNull()) row.drain_deadline = absl::Microseconds(marks.Int());
    image.node_marks.push_back(row);
  }
  RETURN_IF_ERROR(Annotate(marks.status(), path_));
  Statement requests(db_, &statements_, "SELECT * FROM requests ORDER BY request_id");
  while (requests.Next()) {
    RequestRow row;
    row.request_id = requests.Text();
    row.fingerprint = requests.Text();
    row.job_id = requests.Text();
    row.deleted_time = requests.Time();
    row.answer = requests.Text();
    image.requests.push_back(row);
  }
  RETURN_IF_ERROR(Annotate(requests.status(), path_));
  if (!order.empty()) image.last_number = order.rbegin()->first;
  Statement counters(db_, &statements_, "SELECT value FROM counters WHERE name = 'last_number'");
  if (counters.Next()) image.last_number = std::max(image.last_number, counters.Uint());
  RETURN_IF_ERROR(Annotate(counters.status(), path_));
  return image;
}

absl::Status SqliteStore::LoadLists(std::map<std::string, jobs::Job>* jobs) {
  Statement ranks(db_, &statements_, "SELECT * FROM ranks ORDER BY job_id, rank");
  while (ranks.Next()) {
    auto& list = (*jobs)[ranks.Text()].ranks;
    if (ranks.Uint() != list.size()) return absl::DataLossError("a row of table ranks is missing");
    jobs::Rank rank;
    rank.node = ranks.Text();
    rank.slot = static_cast<uint32_t>(ranks.Uint());
    rank.host = ranks.Text();
    rank.agent_incarnation = ranks.Text();
    rank.incarnation = ranks.Text();
    rank.pid = ranks.Int();
    rank.step = ranks.Uint();
    rank.acked_report = ranks.Uint();
    rank.session_started = ranks.Bool();
    rank.finished = ranks.Bool();
    rank.exited = ranks.Bool();
    rank.joined_since = ranks.Uint();
    rank.attached = ranks.Bool();
    list.push_back(std::move(rank));
  }
  RETURN_IF_ERROR(ranks.status());
  Statement checkpoints(db_, &statements_,
                        "SELECT * FROM checkpoints ORDER BY job_id, generation, step, path");
  while (checkpoints.Next()) {
    jobs::Job& job = (*jobs)[checkpoints.Text()];
    jobs::Checkpoint checkpoint;
    checkpoint.path = checkpoints.Text();
    checkpoint.step = checkpoints.Uint();
    checkpoint.generation = checkpoints.Uint();
    checkpoint.create_time = checkpoints.Time();
    checkpoint.bad_reason = checkpoints.Text();
    const bool dropped = checkpoints.Bool();
    checkpoint.origin = static_cast<jobs::Origin>(checkpoints.Int());
    checkpoint.origin_reason = checkpoints.Text();
    if (dropped) {
      job.dropped_checkpoints.push_back(checkpoint.path);
    } else if (checkpoint.origin == jobs::Origin::kFound) {
      job.found_checkpoints.push_back(std::move(checkpoint));
    } else {
      job.checkpoints.push_back(std::move(checkpoint));
    }
  }
  RETURN_IF_ERROR(checkpoints.status());
  Statement attempts(db_, &statements_, "SELECT * FROM attempts ORDER BY job_id, attempt");
  while (attempts.Next()) {
    jobs::AttemptEnd& end = (*jobs)[attempts.Text()].ended_attempts.emplace_back();
    end.attempt = static_cast<uint32_t>(attempts.Uint());
    end.state = static_cast<jobs::State>(attempts.Int());
    end.state_reason = attempts.Text();
    end.reason_code = attempts.Text();
    end.end_time = attempts.Time();
    end.step = attempts.Uint();
  }
  RETURN_IF_ERROR(attempts.status());
  Statement failures(db_, &statements_, "SELECT * FROM failures ORDER BY job_id, position");
  while (failures.Next()) {
    auto& list = (*jobs)[failures.Text()].failures;
    failures.Uint();
    jobs::FailureNote note;
    note.generation = failures.Uint();
    note.rank = static_cast<uint32_t>(failures.Uint());
    note.node = failures.Text();
    note.step = failures.Uint();
    note.kind = static_cast<jobs::FailureKind>(failures.Int());
    note.permanent = failures.Bool();
    note.reason = failures.Text();
    note.log_tail = failures.Text();
    note.code = failures.Text();
    note.collectives = absl::StrSplit(failures.Text(), '\n', absl::SkipEmpty());
    list.push_back(std::move(note));
  }
  RETURN_IF_ERROR(failures.status());
  std::map<std::string, std::vector<commands::Command>> commands;
  Statement rows(db_, &statements_, "SELECT * FROM commands ORDER BY job_id, number");
  while (rows.Next()) {
    auto& list = commands[rows.Text()];
    commands::Command command;
    command.number = rows.Uint();
    command.kind = static_cast<commands::Kind>(rows.Int());
    if (!rows.SkipNull()) command.applied_step = rows.Uint();
    command.contents = rows.Text();
    if (!rows.SkipNull()) command.at_step = rows.Uint();
    command.target = rows.Uint();
    command.requested_by = rows.Text();
    command.create_time = rows.Time();
    if (!rows.SkipNull()) {
      commands::Outcome& outcome = command.outcome.emplace();
      outcome.code = static_cast<absl::StatusCode>(rows.Int());
      outcome.time = rows.Time();
      outcome.reason = rows.Text();
      outcome.message = rows.Text();
      outcome.result = rows.Text();
    }
    list.push_back(std::move(command));
  }
  RETURN_IF_ERROR(rows.status());
  for (auto& [id, list] : commands) (*jobs)[id].commands = commands::CommandLog(std::move(list));
  Statement in_force(db_, &statements_, "SELECT * FROM trainability");
  while (in_force.Next()) {
    jobs::Trainability& trainability = (*jobs)[in_force.Text()].trainability;
    trainability.version = in_force.Uint();
    trainability.in_force = in_force.Text();
    trainability.parameters = in_force.Text();
  }
  RETURN_IF_ERROR(in_force.status());
  Statement changes(db_, &statements_,
                    "SELECT * FROM trainability_changes ORDER BY job_id, version");
  while (changes.Next()) {
    jobs::TrainabilityChange& change = (*jobs)[changes.Text()].trainability.history.emplace_back();
    change.version = changes.Uint();
    change.generation = changes.Uint();
    change.time = changes.Time();
    change.command = changes.Uint();
    change.contents = changes.Text();
  }
  RETURN_IF_ERROR(changes.status());
  Statement events(db_, &statements_, "SELECT * FROM events ORDER BY job_id, number");
  while (events.Next()) {
    jobs::JobEvent& event = (*jobs)[events.Text()].events.emplace_back();
    event.number = events.Uint();
    event.time = events.Time();
    event.generation = events.Uint();
    event.step = events.Uint();
    event.reason = events.Text();
    event.message = events.Text();
  }
  RETURN_IF_ERROR(events.status());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StepRow>> SqliteStore::ReadSteps(const std::string& job_id,
                                                            uint64_t from_step, size_t limit) {
  std::vector<StepRow> steps;
  Statement rows(db_, &statements_,
                 "SELECT * FROM steps WHERE job_id = ? AND step >= ? ORDER BY step LIMIT ?");
  rows.Bind(job_id).Bind(from_step).Bind(static_cast<uint64_t>(limit));
  while (rows.Next()) {
    StepRow row;
    row.job_id = rows.Text();
    row.step = rows.Uint();
    row.generation = rows.Uint();
    row.loss = NanWhenAbsent(rows.OptionalDouble());
    row.learning_rate = NanWhenAbsent(rows.OptionalDouble());
    row.grad_norm = rows.OptionalDouble();
    row.samples = rows.Uint();
    row.duration = absl::Nanoseconds(rows.Int());
    row.perplexity = rows.OptionalDouble();
    if (!rows.SkipNull()) row.tokens = rows.Uint();
    row.model_flops_per_second = rows.OptionalDouble();
    row.skipped = rows.Bool();
    row.loss_scale = rows.OptionalDouble();
    steps.push_back(std::move(row));
  }
  RETURN_IF_ERROR(Annotate(rows.status(), path_));
  return steps;
}

absl::StatusOr<std::vector<ValidationRow>> SqliteStore::ReadValidations(const std::string& job_id,
                                                                        uint64_t from_step,
                                                                        size_t limit) {
  std::vector<ValidationRow> validations;
  Statement rows(db_, &statements_,
                 "SELECT job_id, step, generation, loss, accuracy, perplexity, samples FROM "
                 "validations WHERE job_id = ? AND step >= ? ORDER BY step LIMIT ?");
  rows.Bind(job_id).Bind(from_step).Bind(static_cast<uint64_t>(limit));
  while (rows.Next()) {
    ValidationRow row;
    row.job_id = rows.Text();
    row.step = rows.Uint();
    row.generation = rows.Uint();
    row.loss = NanWhenAbsent(rows.OptionalDouble());
    row.accuracy = rows.OptionalDouble();
    row.perplexity = rows.OptionalDouble();
    row.samples = rows.Uint();
    validations.push_back(std::move(row));
  }
  RETURN_IF_ERROR(Annotate(rows.status(), path_));
  return validations;
}

absl::StatusOr<std::vector<LogRow>> SqliteStore::ReadLogs(const std::string& job_id,
                                                          uint64_t after_sequence,
                                                          std::optional<uint32_t> rank,
                                                          size_t limit) {
  std::vector<LogRow> lines;
  Statement rows(db_, &statements_,
                 "SELECT * FROM logs WHERE job_id = ? AND sequence > ? AND (?3 IS NULL OR rank = "
                 "?3) ORDER BY sequence LIMIT ?");
  rows.Bind(job_id).Bind(after_sequence).Bind(rank).Bind(static_cast<uint64_t>(limit));
  while (rows.Next()) {
    LogRow row;
    row.job_id = rows.Text();
    row.sequence = rows.Uint();
    row.generation = rows.Uint();
    row.rank = static_cast<uint32_t>(rows.Uint());
    row.text = rows.Text();
    lines.push_back(std::move(row));
  }
  RETURN_IF_ERROR(Annotate(rows.status(), path_));
  return lines;
}

}  // namespace muster::store
