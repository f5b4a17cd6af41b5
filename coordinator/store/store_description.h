// Every field of a store as lines of text, in the form that testdata/describe.py writes for a
// database of version 13, with the names of the tables and columns of that version.
#ifndef MUSTER_COORDINATOR_STORE_STORE_DESCRIPTION_H_
#define MUSTER_COORDINATOR_STORE_STORE_DESCRIPTION_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/metrics.pb.h"

namespace muster::store {

inline v1::StepMetrics Parse(const std::string& bytes) {
  v1::StepMetrics metrics;
  EXPECT_TRUE(metrics.ParseFromString(bytes));
  return metrics;
}

// A value as describe.py writes it.
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
inline std::string Text(T value) {
  return absl::StrCat(static_cast<int64_t>(value));
}
inline std::string Text(double value) {
  // Version 13 stored such a number in this way.
  if (std::isnan(value)) return "null";
  return absl::StrFormat("bits %016x", std::bit_cast<uint64_t>(value));
}
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
  // The columns of the row `row` ("ranks job 0").
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

// The names are those of version 13.
inline void DescribeJob(const jobs::Job& j, Lines* lines) {
  Lines& line = *lines;
  line.Row("jobs", j.id);
  line("number", j.number)("spec", j.spec)("world_size", j.plan.world_size);
  line("total_steps", j.plan.total_steps)("max_restarts", j.plan.max_restarts);
  line("keep_checkpoints", j.plan.keep_checkpoints)("state", j.state);
  line("state_reason", j.state_reason)("version_ceiling", j.version_ceiling);
  // Older files have none.
  if (!j.submitter.empty()) line("submitter", j.submitter);
  if (!j.job_file.empty()) line("job_file", j.job_file);
  line("create_time", j.create_time)("start_time", j.start_time)("end_time", j.end_time);
  line("generation", j.generation)("live", j.live)("ending", j.ending);
  line("stop_requested", j.stop_requested)("restarts", j.restarts);
  const auto& rendezvous = j.rendezvous;
  line.As("rendezvous_host", rendezvous.has_value() ? Text(rendezvous->host) : "null");
  line.As("rendezvous_port", rendezvous.has_value() ? Text(rendezvous->port) : "null");
  line("stage", j.stage)("step", j.step)("exported_path", j.exported_path);
  line("log_sequence", j.log_sequence)("skipped_steps", j.skipped_steps);
  const v1::StepMetrics step = Parse(j.newest_step);
  line.As("loss", If(step.has_loss(), Text(step.loss())));
  line.As("perplexity", If(step.has_perplexity(), Text(step.perplexity())));
  line.As("grad_norm", If(step.has_grad_norm(), Text(step.grad_norm())));
  const v1::StepMetrics pass = Parse(j.newest_validation);
  const v1::Evaluation& v = pass.validation();
  line.As("validation_loss", If(pass.has_validation(), Text(v.loss())));
  line("validation_step", pass.step());
  line.As("validation_accuracy", If(v.has_accuracy(), Text(v.accuracy())));
  line.As("validation_perplexity", If(v.has_perplexity(), Text(v.perplexity())));
  line("priority", j.plan.priority)("paused", j.paused)("ended_early", j.ended_early);
  line("reason_code", j.reason_code)("export_granted", j.export_granted);
  const auto save = j.save_failure.value_or(jobs::SaveFailure());
  const bool failed = j.save_failure.has_value();
  line.As("save_failure_step", If(failed, Text(save.step)));
  line.As("save_failure_message", If(failed, Text(save.message)));
  line.As("save_failure_time", If(failed, Text(save.time)));
  line.As("save_failure_count", If(failed, Text(save.count)));
  line.As("no_progress_ns", Nanoseconds(j.plan.no_progress));
  line.As("startup_ns", Nanoseconds(j.plan.startup));
  line("newest_generation_seen", j.newest_generation_seen)("halt_reason", j.halt_reason);
  line("from_scratch", j.from_scratch)("start_from", j.start_from);
  line("continue_when_cut_off", j.plan.continue_when_cut_off)("interruption", j.interruption);
  line("preempted", j.preempted)("restarts_used", j.restarts_used)("node_faults", j.node_faults);
  line("failed_step", j.failed_step)("started_step", j.started_step)("not_before", j.not_before);
  line("attempt", j.attempt)("live_since", j.live_since)("time_up", j.time_up);
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
  for (const auto* checkpoints : {&job.checkpoints, &job.found_checkpoints}) {
    for (const jobs::Checkpoint& one : *checkpoints) {
      line.Row("checkpoints", job.id, one.path);
      line("step", one.step)("generation", one.generation)("create_time", one.create_time);
      line("bad_reason", one.bad_reason)("dropped", false)("origin", one.origin);
      line("origin_reason", one.origin_reason);
    }
  }
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
    if (!command.requester.empty()) line("requester", command.requester);
    line("requested_by", command.requested_by)("create_time", command.create_time);
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
  const auto steps = store.ReadSteps(id, 0, 1000);
  const auto passes = store.ReadValidations(id, 0, 1000);
  const auto logs = store.ReadLogs(id, 0, {}, 1000);
  for (const MetricsRow& row : *steps) {
    const v1::StepMetrics m = Parse(row.metrics);
    line.Row("steps", id, row.step);
    line("generation", row.generation);
    line.As("loss", If(m.has_loss(), Text(m.loss())));
    line.As("learning_rate", If(m.has_learning_rate(), Text(m.learning_rate())));
    line.As("grad_norm", If(m.has_grad_norm(), Text(m.grad_norm())));
    line("samples", m.samples());
    line("duration_ns", m.duration().seconds() * 1000000000 + m.duration().nanos());
    line.As("perplexity", If(m.has_perplexity(), Text(m.perplexity())));
    line.As("tokens", If(m.has_tokens(), Text(m.tokens())));
    line.As("model_flops_per_second",
            If(m.has_model_flops_per_second(), Text(m.model_flops_per_second())));
    line("skipped", m.skipped());
    line.As("loss_scale", If(m.has_loss_scale(), Text(m.loss_scale())));
    EXPECT_EQ(m.step(), row.step);
    EXPECT_EQ(m.generation(), row.generation);
  }
  for (const MetricsRow& row : *passes) {
    const v1::Evaluation v = Parse(row.metrics).validation();
    line.Row("validations", id, row.step);
    line("generation", row.generation)("loss", v.loss())("samples", v.samples());
    line.As("accuracy", If(v.has_accuracy(), Text(v.accuracy())));
    line.As("perplexity", If(v.has_perplexity(), Text(v.perplexity())));
  }
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
  return std::move(line).Sorted();
}

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_STORE_DESCRIPTION_H_
