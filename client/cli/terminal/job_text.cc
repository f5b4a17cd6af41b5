#include "client/cli/terminal/job_text.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/terminal/metrics_text.h"
#include "client/cli/terminal/output.h"
#include "common/rpc/proto_time.h"

namespace muster::cli {
namespace {

std::string Stamp(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", FromProto(time), absl::UTCTimeZone());
}

// The progress of a rank that has joined, with a separator.
std::string ProgressOf(const v1::RankStatus& rank) {
  if (!rank.has_joined_since_step()) return rank.progress();
  return absl::StrCat("joined since step ", rank.joined_since_step(),
                      rank.progress().empty() ? "" : "; ", rank.progress());
}

std::string Mebibytes(uint64_t bytes) {
  return absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20));
}

std::string Mebibytes(const v1::MemoryUse& use) {
  return absl::StrCat(Mebibytes(use.bytes()), "/", Mebibytes(use.peak_bytes()));
}

// The number of events that `muster get` shows.
constexpr int kShownEvents = 5;

// "optimizer.adamw.lr: 0.002 -> 0.0001"
std::string ChangeText(const v1::SettingChange& change) {
  const auto value = [](const std::string& text) { return text.empty() ? "left out" : text; };
  return absl::StrCat(change.path(), ": ", value(change.old_value()), " -> ",
                      value(change.new_value()));
}

std::string Note(const v1::Job& job) {
  std::vector<std::string> notes;
  if (!job.reason().empty()) notes.push_back(job.reason());
  if (job.save_failure().count() > 1)
    notes.push_back(absl::StrCat(job.save_failure().count(), " times"));
  notes.insert(notes.end(), job.warnings().begin(), job.warnings().end());
  return absl::StrJoin(notes, "; ");
}

}  // namespace

std::string StateName(v1::Job::State state) { return v1::Job::State_Name(state); }

std::string Steps(const v1::Job& job) { return absl::StrCat(job.step(), "/", job.total_steps()); }

std::string Loss(bool has, double loss) { return has ? LossText(loss) : "-"; }

std::string HumanDuration(absl::Duration duration) {
  duration = std::max(duration, absl::ZeroDuration());
  if (duration < absl::Seconds(10))
    return absl::StrFormat("%.1fs", absl::ToDoubleSeconds(duration));
  const int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  if (seconds < 100 * 3600) return absl::StrFormat("%dh%02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrCat(seconds / 86400, "d");
}

std::string HumanBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Ago(const google::protobuf::Timestamp& time, absl::Time now) {
  if (time.seconds() == 0) return "-";
  return absl::StrCat(HumanDuration(now - FromProto(time)), " ago");
}

std::string JobTable(const std::vector<v1::Job>& jobs, absl::Time now) {
  Table table({"ID", "STATE", "PRIORITY", "RANKS", "STAGE", "STEP", "LOSS", "VALIDATION",
               "RESTARTS", "CREATED", "NOTE"});
  for (const v1::Job& job : jobs) {
    table.Add({job.id(), StateName(job.state()), absl::StrCat(job.spec().priority()),
               absl::StrCat(job.world_size()), job.stage().empty() ? "-" : job.stage(), Steps(job),
               Loss(job.has_loss(), job.loss()),
               Loss(job.has_validation_loss(), job.validation_loss()), absl::StrCat(job.restarts()),
               Ago(job.create_time(), now), Note(job)});
  }
  return table.Text();
}

std::string RankTable(const v1::Job& job, absl::Time now) {
  Table ranks({"RANK", "NODE", "PID", "DEVICE", "STATE", "STEP", "SEEN", "PROGRESS"});
  for (const v1::RankStatus& rank : job.ranks()) {
    const std::string device = rank.device_name().empty()
                                   ? rank.device()
                                   : absl::StrCat(rank.device(), " ", rank.device_name());
    ranks.Add({absl::StrCat(rank.rank()), rank.node(), absl::StrCat(rank.pid()), device,
               v1::RankStatus::State_Name(rank.state()), absl::StrCat(rank.step()),
               Ago(rank.last_seen(), now), ProgressOf(rank)});
  }
  return ranks.Text();
}

std::string CollectivesTable(const v1::Job& job) {
  Table table({"RANK", "BEGUN", "ENDED", "NEWEST"});
  bool any = false;
  for (const v1::RankStatus& rank : job.ranks()) {
    if (rank.collectives_begun() == 0) continue;
    any = true;
    table.Add({absl::StrCat(rank.rank()), absl::StrCat(rank.collectives_begun()),
               absl::StrCat(rank.collectives_ended()), rank.last_collective()});
  }
  return any ? "collectives:\n" + table.Text() : "";
}

std::string MemoryTable(const v1::Job& job) {
  std::vector<std::string> columns = {"RANK",    "TOTAL",   "PARAMETERS",  "GATHERED", "GRADIENTS",
                                      "MOMENTS", "BUCKETS", "ACTIVATIONS", "OTHER",    "RESIDENT"};
  const bool gpus = std::any_of(job.ranks().begin(), job.ranks().end(), [](const auto& rank) {
    return rank.memory().reserved_bytes() > 0;
  });
  if (gpus) columns.push_back("RESERVED");
  Table table(columns);
  for (const v1::RankStatus& rank : job.ranks()) {
    if (!rank.has_memory()) continue;
    const v1::RankMemory& memory = rank.memory();
    std::vector<std::string> row = {
        absl::StrCat(rank.rank()),      Mebibytes(memory.total()),
        Mebibytes(memory.parameters()), Mebibytes(memory.gathered()),
        Mebibytes(memory.gradients()),  Mebibytes(memory.moments()),
        Mebibytes(memory.buckets()),    Mebibytes(memory.activations()),
        Mebibytes(memory.other()),      Mebibytes(memory.resident_bytes())};
    if (gpus) row.push_back(Mebibytes(memory.reserved_bytes()));
    table.Add(row);
  }
  return table.empty() ? "" : absl::StrCat("memory in MiB, now/peak:\n", table.Text());
}

std::string EventLine(const v1::JobEvent& event) {
  return absl::StrCat("step ", event.step(), ": ", event.reason(), ": ", event.message());
}

std::vector<v1::JobEvent> NewEvents(const v1::Job& before, const v1::Job& job) {
  int first = 0;
  if (!before.events().empty()) {
    const std::string newest = before.events().rbegin()->SerializeAsString();
    for (int i = job.events_size(); i-- > 0;) {
      if (job.events(i).SerializeAsString() != newest) continue;
      first = i + 1;
      break;
    }
  }
  return {job.events().begin() + first, job.events().end()};
}

std::string EventTable(const v1::Job& job, absl::Time now) {
  if (job.events().empty()) return "";
  Table table({"EVENT", "WHEN", "GENERATION", "STEP", "MESSAGE"});
  for (int i = std::max(0, job.events_size() - kShownEvents); i < job.events_size(); ++i) {
    const v1::JobEvent& event = job.events(i);
    table.Add({event.reason(), Ago(event.time(), now), absl::StrCat(event.generation()),
               absl::StrCat(event.step()), event.message()});
  }
  return table.Text();
}

std::string BestCheckpoint(const v1::Job& job) {
  std::string best;
  for (const v1::Checkpoint& checkpoint : job.checkpoints()) {
    if (checkpoint.best() && checkpoint.bad_reason().empty()) best = checkpoint.path();
  }
  return best;
}

std::string JobDetails(const v1::Job& job, absl::Time now) {
  Table facts;
  const auto add = [&facts](const std::string& name, const std::string& value) {
    if (!value.empty()) facts.Add({name, value});
  };
  add("id", job.id());
  add("name", job.spec().name());
  add("state", job.state_reason().empty()
                   ? StateName(job.state())
                   : absl::StrCat(StateName(job.state()), ": ", job.state_reason()));
  add("reason", job.reason());
  for (const std::string& warning : job.warnings()) add("warning", warning);
  if (job.has_save_failure()) {
    const v1::SaveFailure& failure = job.save_failure();
    add("failed saves", absl::StrCat(failure.count(), ", the newest at step ", failure.step(), " (",
                                     Ago(failure.time(), now), "): ", failure.message()));
  }
  add("priority", absl::StrCat(job.spec().priority()));
  add("stage", job.stage());
  add("step", Steps(job));
  if (job.has_loss()) add("loss", Loss(true, job.loss()));
  if (job.has_perplexity()) add("perplexity", absl::StrFormat("%.4g", job.perplexity()));
  if (job.has_grad_norm()) add("gradient norm", LossText(job.grad_norm()));
  if (job.skipped_steps() > 0) add("skipped steps", absl::StrCat(job.skipped_steps()));
  if (job.has_validation_loss()) {
    add("validation loss",
        absl::StrCat(Loss(true, job.validation_loss()), " after step ", job.validation_step()));
  }
  if (job.has_validation_perplexity()) {
    add("validation perplexity", absl::StrFormat("%.4g", job.validation_perplexity()));
  }
  if (job.has_validation_accuracy()) {
    add("validation accuracy", Percent(job.validation_accuracy()));
  }
  if (job.validation().has_top_k_accuracy()) {
    add(absl::StrCat("validation top ", job.validation().top_k()),
        Percent(job.validation().top_k_accuracy()));
  }
  if (job.has_test()) {
    add("test loss", absl::StrCat(Loss(true, job.test().loss()), AccuracyText(job.test()),
                                  " after step ", job.test_step()));
  }
  if (job.samples_per_second() > 0) {
    add("samples/s", absl::StrFormat("%.1f", job.samples_per_second()));
  }
  if (job.has_tokens_per_second()) {
    add("tokens/s", absl::StrFormat("%.1f", job.tokens_per_second()));
  }
  if (job.has_model_flops_per_second()) {
    add("FLOP/s", job.has_model_flops_utilization()
                      ? absl::StrCat(WithUnit(job.model_flops_per_second()), ", ",
                                     Percent(job.model_flops_utilization()), " of the GPUs' peak")
                      : WithUnit(job.model_flops_per_second()));
  }
  add("ranks", job.joined_ranks() == 0
                   ? absl::StrCat(job.world_size())
                   : absl::StrCat(job.world_size(), ", ", job.joined_ranks(), " joined"));
  add("generation", absl::StrCat(job.generation(), ", restarts: ", job.restarts()));
  if (job.attempt() > 1) {
    const v1::AttemptEnd& former = job.ended_attempts(job.ended_attempts_size() - 1);
    add("attempt", absl::StrCat(job.attempt(), "; the one before: ", StateName(former.state()),
                                ": ", former.state_reason()));
  }
  for (const v1::SettingChange& change : job.setting_changes()) {
    add("changed", absl::StrCat(ChangeText(change), ", since attempt ", change.attempt(), ", by ",
                                change.requester()));
  }
  add("created", Stamp(job.create_time()));
  if (job.has_start_time()) add("started", Stamp(job.start_time()));
  if (job.has_end_time()) add("ended", Stamp(job.end_time()));
  add("weights", job.exported_path());
  std::string text = facts.Text();

  if (!job.ranks().empty()) absl::StrAppend(&text, "\n", RankTable(job, now));
  if (!job.checkpoints().empty()) {
    Table checkpoints(
        {"CHECKPOINT", "GENERATION", "CREATED", "SIZE", "WRITTEN IN", "STALL", "PATH"});
    const std::string best = BestCheckpoint(job);
    for (const v1::Checkpoint& checkpoint : job.checkpoints()) {
      const bool known = checkpoint.bytes() > 0;
      checkpoints.Add({absl::StrCat("step ", checkpoint.step()),
                       absl::StrCat(checkpoint.generation()), Ago(checkpoint.create_time(), now),
                       known ? HumanBytes(checkpoint.bytes()) : "",
                       known ? absl::StrFormat("%.2f s", checkpoint.write_seconds()) : "",
                       known ? absl::StrFormat("%.2f s", checkpoint.stall_seconds()) : "",
                       absl::StrCat(checkpoint.path(),
                                    checkpoint.bad_reason().empty()
                                        ? ""
                                        : absl::StrCat(" BAD: ", checkpoint.bad_reason()),
                                    checkpoint.path() == best ? " BEST" : "")});
    }
    absl::StrAppend(&text, "\n", checkpoints.Text());
  }
  if (const int found = job.found_checkpoints_size(); found > 0) {
    absl::StrAppend(&text, "\n", found, found == 1 ? " checkpoint" : " checkpoints",
                    " in its folder that ", found == 1 ? "does" : "do",
                    " not count; `muster checkpoints list ", job.id(), "` shows ",
                    found == 1 ? "it" : "them", "\n");
  }
  const std::string events = EventTable(job, now);
  if (!events.empty()) absl::StrAppend(&text, "\n", events);
  const std::string failure = FailureText(job);
  if (!failure.empty()) absl::StrAppend(&text, "\nlast failure: ", failure);
  return text;
}

std::string SettingChanges(const v1::Job& job, uint32_t attempt) {
  std::string text;
  for (const v1::SettingChange& change : job.setting_changes()) {
    if (change.attempt() == attempt) absl::StrAppend(&text, "  ", ChangeText(change), "\n");
  }
  return text;
}

std::string JobSummary(const v1::Job& job) {
  std::string text =
      absl::StrCat("job ", job.id(), " ", StateName(job.state()), ": ", Steps(job), " steps");
  if (job.has_loss()) absl::StrAppend(&text, ", loss ", Loss(true, job.loss()));
  if (job.has_validation_loss()) {
    absl::StrAppend(&text, ", validation loss ", Loss(true, job.validation_loss()));
  }
  if (job.has_validation_accuracy()) {
    absl::StrAppend(&text, ", validation accuracy ", Percent(job.validation_accuracy()));
  }
  if (job.has_test()) {
    absl::StrAppend(&text, ", test loss ", Loss(true, job.test().loss()));
    if (job.test().has_accuracy()) {
      absl::StrAppend(&text, ", test accuracy ", Percent(job.test().accuracy()));
    }
  }
  if (job.has_start_time() && job.has_end_time()) {
    absl::StrAppend(&text, ", ",
                    HumanDuration(FromProto(job.end_time()) - FromProto(job.start_time())));
  }
  if (job.restarts() > 0) absl::StrAppend(&text, ", restarts ", job.restarts());
  if (!job.exported_path().empty()) absl::StrAppend(&text, ", weights in ", job.exported_path());
  return text;
}

std::string FailureText(const v1::Job& job) {
  if (!job.has_failure()) return "";
  const v1::Failure& failure = job.failure();
  std::string text = absl::StrCat("rank ", failure.rank());
  if (!failure.node().empty()) absl::StrAppend(&text, " on ", failure.node());
  absl::StrAppend(&text, ", generation ", failure.generation(), ", step ", failure.step(), ": ",
                  failure.reason(), "\n");
  for (const std::string& consequence : failure.consequences()) {
    absl::StrAppend(&text, "  then: ", consequence, "\n");
  }
  if (!failure.collectives().empty()) absl::StrAppend(&text, "  last collectives:\n");
  for (const std::string& collective : failure.collectives()) {
    absl::StrAppend(&text, "    ", collective, "\n");
  }
  if (!failure.log_tail().empty()) {
    absl::StrAppend(&text, "  last lines of its log:\n");
    std::istringstream lines(failure.log_tail());
    for (std::string line; std::getline(lines, line);) absl::StrAppend(&text, "    ", line, "\n");
  }
  return text;
}

}  // namespace muster::cli
