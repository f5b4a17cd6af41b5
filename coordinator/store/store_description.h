// Every field of a store as lines of text. testdata/describe.py writes the same form for a database
// of schema version 19. The names of tables and columns are from version 19.
#ifndef MUSTER_COORDINATOR_STORE_STORE_DESCRIPTION_H_
#define MUSTER_COORDINATOR_STORE_STORE_DESCRIPTION_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/jobs/life_row.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/metrics.pb.h"

namespace muster::store {

inline v1::StepMetrics Parse(const std::string& bytes) {
  v1::StepMetrics metrics;
  EXPECT_TRUE(metrics.ParseFromString(bytes));
  return metrics;
}

// Returns a value in the form that describe.py writes.
inline std::string Text(const std::string& bytes) {
  const bool plain = std::all_of(bytes.begin(), bytes.end(),
                                 [](unsigned char byte) { return byte >= 32 && byte < 127; });
  if (plain && bytes.size() <= 32) return absl::StrCat("'", bytes, "'");
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return absl::StrFormat("%d bytes %016x", bytes.size(), hash);
}
inline std::string Text(const char* text) { return Text(std::string(text)); }
template <typename T>
requires std::is_integral_v<T> || std::is_enum_v<T>
inline std::string Text(T value) { return absl::StrCat(static_cast<int64_t>(value)); }
inline std::string Text(absl::Time time) {
  return time == absl::InfinitePast() ? "null" : Text(absl::ToUnixMicros(time));
}
template <typename T>
inline std::string Text(const std::optional<T>& value) {
  return value.has_value() ? Text(*value) : "null";
}
inline std::string Nanoseconds(const std::optional<absl::Duration>& value) {
  return value.has_value() ? Text(absl::ToInt64Nanoseconds(*value)) : "null";
}
inline std::string Microseconds(const std::optional<absl::Duration>& value) {
  const bool none = !value.has_value() || *value == absl::InfiniteDuration();
  return none ? "null" : Text(absl::ToInt64Microseconds(*value));
}
inline std::string If(bool has, const std::string& text) { return has ? text : "null"; }

class Lines {
 public:
  // Begins the columns of the row `row` ("ranks job 0").
  template <typename... Keys>
  void Row(const Keys&... key) {
    row_ = absl::StrJoin(std::make_tuple(key...), " ");
  }
  template <typename T>
  Lines& operator()(const char* column, const T& value) {
    return As(column, Text(value));
  }
  Lines& As(const char* column, const std::string& text) {
    lines_.push_back(absl::StrCat(row_, " ", column, " = ", text));
    return *this;
  }
  std::vector<std::string> Sorted() && {
    std::sort(lines_.begin(), lines_.end());
    return std::move(lines_);
  }

 private:
  std::string row_;
  std::vector<std::string> lines_;
};

inline void DescribeJob(const jobs::Job& j, Lines* lines) {
  Lines& line = *lines;
  const jobs::LifeRow life = jobs::RowOf(j);
  line.Row("jobs", j.id);
  line("number", j.number)("spec", j.spec)("world_size", j.plan.world_size);
  line("total_steps", j.plan.total_steps)("max_restarts", j.plan.max_restarts);
  line("keep_checkpoints", j.plan.keep_checkpoints)("state", life.state);
  line("state_reason", j.state_reason)("version_ceiling", j.version_ceiling);
  line("submitter", j.submitter)("device", j.plan.device)("threads", j.plan.threads);
  line("create_time", j.create_time)("start_time", j.start_time)("end_time", life.end_time);
  line("generation", j.generation)("live", life.live)("ending", life.ending);
  line("stop_requested", life.stop_requested)("restarts", j.restarts);
  const auto& rendezvous = life.rendezvous;
  line.As("rendezvous_host", rendezvous.has_value() ? Text(rendezvous->host) : "null");
  line.As("rendezvous_port", rendezvous.has_value() ? Text(rendezvous->port) : "null");
  line("stage", j.stage)("step", j.step)("exported_path", j.exported_path);
  line("log_sequence", j.log_sequence)("skipped_steps", j.skipped_steps);
  line("newest_step", j.newest_step)("newest_validation", j.newest_validation);
  line("newest_test", j.newest_test)("fit_steps", j.fit_steps);
  line("stages_done", j.stages_done)("stages_done_step", j.stages_done_step);
  line("priority", j.plan.priority)("paused", life.paused)("ended_early", life.ended_early);
  line("reason_code", j.reason_code)("export_granted", life.export_granted);
  const auto save = j.save_failure.value_or(jobs::SaveFailure());
  const bool failed = j.save_failure.has_value();
  line.As("save_failure_step", If(failed, Text(save.step)));
  line.As("save_failure_message", If(failed, Text(save.message)));
  line.As("save_failure_time", If(failed, Text(save.time)));
  line.As("save_failure_count", If(failed, Text(save.count)));
  line.As("no_progress_ns", Nanoseconds(j.plan.no_progress));
  line.As("startup_ns", Nanoseconds(j.plan.startup));
  line("newest_generation_seen", j.newest_generation_seen)("halt_reason", life.halt_reason);
  line("from_scratch", j.from_scratch)("start_from", j.start_from);
  line("continue_when_cut_off", j.plan.continue_when_cut_off)("interruption", life.interruption);
  line("preempted", life.preempted)("restarts_used", j.restarts_used)("node_faults", j.node_faults);
  line("failed_step", j.failed_step)("started_step", j.started_step)("not_before", life.not_before);
  line("attempt", j.attempt)("live_since", life.since)("time_up", life.time_up);
  line.As("time_limit", Microseconds(j.plan.time_limit));
  line.As("time_used", Microseconds(j.time_used));
}

inline void DescribeLists(const jobs::Job& job, Lines* lines) {
  Lines& line = *lines;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    const jobs::Rank& rank = job.ranks[i];
    line.Row("ranks", job.id, i);
    line("node", rank.node)("slot", rank.slot)("host", rank.host)("pid", rank.pid);
    line("agent_incarnation", rank.agent_incarnation)("incarnation", rank.incarnation);
    line("step", rank.step)("acked_report", rank.acked_report)("finished", rank.finished);
    line("session_started", rank.session_started)("exited", rank.exited);
    line("attached", rank.attached)("joined_since", rank.joined_since);
  }
  const auto checkpoint = [&](const jobs::Checkpoint& one, bool dropped) {
    line.Row("checkpoints", job.id, one.path);
    line("step", one.step)("generation", one.generation)("create_time", one.create_time);
    line("bad_reason", one.bad_reason)("dropped", dropped)("origin", one.origin);
    line("origin_reason", one.origin_reason)("bytes", one.bytes)("best", one.best);
    line.As("stall_us", Microseconds(one.stall)).As("write_us", Microseconds(one.write_time));
  };
  for (const jobs::Checkpoint& one : job.checkpoints) checkpoint(one, false);
  for (const jobs::Checkpoint& one : job.found_checkpoints) checkpoint(one, false);
  for (const std::string& path : job.dropped_checkpoints) checkpoint({.path = path}, true);
  for (size_t i = 0; i < job.failures.size(); ++i) {
    const jobs::FailureNote& note = job.failures[i];
    line.Row("failures", job.id, i);
    line("generation", note.generation)("rank", note.rank)("node", note.node)("step", note.step);
    line("kind", note.kind)("permanent", note.permanent)("reason", note.reason);
    line("log_tail", note.log_tail)("code", note.code);
    line("collectives", absl::StrJoin(note.collectives, "\n"));
  }
  for (const commands::Command& command : job.commands.commands()) {
    line.Row("commands", job.id, command.number);
    line("kind", command.kind)("applied_step", command.applied_step)("contents", command.contents);
    line("at_step", command.at_step)("target", command.target);
    line("requester", command.requester)("requested_by", command.requested_by)("create_time",
                                                                               command.create_time);
    const bool ended = command.outcome.has_value();
    const auto outcome = command.outcome.value_or(commands::Outcome());
    line.As("outcome_code", If(ended, Text(outcome.code)));
    line.As("outcome_time", If(ended, Text(outcome.time)));
    line.As("outcome_reason", If(ended, Text(outcome.reason)));
    line.As("outcome_message", If(ended, Text(outcome.message)));
    line.As("outcome_result", If(ended, Text(outcome.result)));
  }
  for (const jobs::AttemptEnd& end : job.ended_attempts) {
    line.Row("attempts", job.id, end.attempt);
    line("state", end.state)("state_reason", end.state_reason)("reason_code", end.reason_code);
    line("end_time", end.end_time)("step", end.step);
  }
  if (job.trainability.version > 0 || !job.trainability.in_force.empty()) {
    line.Row("trainability", job.id);
    line("version", job.trainability.version)("in_force", job.trainability.in_force);
    line("parameters", job.trainability.parameters);
  }
  for (const jobs::TrainabilityChange& change : job.trainability.history) {
    line.Row("trainability_changes", job.id, change.version);
    line("generation", change.generation)("time", change.time)("command", change.command);
    line("contents", change.contents);
  }
  for (const jobs::JobEvent& event : job.events) {
    line.Row("events", job.id, event.number);
    line("time", event.time)("generation", event.generation)("step", event.step);
    line("reason", event.reason)("message", event.message);
  }
}

inline void DescribeMetrics(Store& store, const std::string& id, Lines* lines) {
  Lines& line = *lines;
  const std::pair<const char*, std::vector<MetricsRow>> tables[] = {
      {"steps", *store.ReadMetrics(MetricsOf::kSteps, id, 0, 1000)},
      {"validations", *store.ReadMetrics(MetricsOf::kValidations, id, 0, 1000)},
      {"tests", *store.ReadMetrics(MetricsOf::kTests, id, 0, 1000)}};
  for (const auto& [table, rows] : tables) {
    for (const MetricsRow& row : rows) {
      line.Row(table, id, row.step);
      line("generation", row.generation)("metrics", row.metrics);
      EXPECT_EQ(Parse(row.metrics).step(), row.step);
    }
  }
  const auto logs = store.ReadLogs(id, 0, {}, 1000);
  for (const LogRow& row : *logs) {
    line.Row("logs", id, row.sequence);
    line("generation", row.generation)("rank", row.rank)("text", row.text);
  }
}

inline std::vector<std::string> Describe(Store& store) {
  const auto image = store.Load();
  EXPECT_TRUE(image.ok()) << image.status();
  Lines line;
  for (const jobs::Job& job : image->jobs) {
    DescribeJob(job, &line);
    DescribeLists(job, &line);
    DescribeMetrics(store, job.id, &line);
  }
  for (const NodeRow& row : image->nodes) {
    line.Row("nodes", row.node);
    line("incarnation", row.incarnation)("host", row.host)("slots", row.slots);
  }
  for (const NodeMarkRow& row : image->node_marks) {
    line.Row("node_marks", row.node);
    line("cordoned", row.cordoned)("drained", row.drained)("reason", row.reason);
    line("agent_id", row.agent_id)("incarnations", absl::StrJoin(row.incarnations, " "));
    line("left_out_until", row.left_out.until)("left_out_reason", row.left_out.reason);
    line("left_out_times", row.left_out.times);
    line.As("drain_deadline", Microseconds(row.drain_deadline));
  }
  for (const RequestRow& row : image->requests) {
    line.Row("requests", row.request_id);
    line("fingerprint", row.fingerprint)("job_id", row.job_id)("answer", row.answer);
    line("deleted_time", row.deleted_time);
  }
  for (const DeliveryRow& row : image->deliveries) {
    line.Row("deliveries", row.number);
    line("receiver", row.receiver)("id", row.id)("job_id", row.job_id);
    line("create_time", row.create_time)("body", row.body);
  }
  return std::move(line).Sorted();
}

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_STORE_DESCRIPTION_H_
