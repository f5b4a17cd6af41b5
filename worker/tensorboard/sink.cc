#include "worker/tensorboard/sink.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/commands/command_rule.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "common/utf8/utf8.h"
#include "worker/tensorboard/event.h"
#include "worker/tensorboard/folder.h"

namespace muster::tensorboard {
namespace {

constexpr char kTrainedTag[] = "train/trainable_parameters";
// The tags of marks: texts about events of a job besides its steps, at the step of the event.
constexpr char kOperationsTag[] = "marks/operations";
constexpr char kGenerationsTag[] = "marks/generations";
constexpr char kStagesTag[] = "marks/stages";
constexpr char kCheckpointsTag[] = "marks/checkpoints";

double WallTime() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

// Returns the path without '/' at its end.
std::string Trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Returns the writer's part of a file's name. A node may have any name, so other characters are
// replaced.
std::string WriterName(const std::string& node, int64_t generation) {
  std::string name = absl::StrCat(node, ".", getpid(), ".g", generation);
  for (char& letter : name) {
    if (!absl::ascii_isalnum(letter) && letter != '.' && letter != '-') letter = '_';
  }
  return name;
}

std::string Describe(const Steps& steps) {
  if (steps.first == steps.last) return absl::StrCat("step ", steps.first);
  return absl::StrCat("steps ", steps.first, " to ", steps.last);
}

constexpr size_t kShownNames = 3;

std::string Names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kShownNames);
  std::string text = absl::StrJoin(names.begin(), names.begin() + shown, ", ");
  if (names.size() > shown) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

std::string Rules(const v1::SetTrainabilityCommand& set) {
  std::vector<std::string> texts;
  for (const v1::TrainableRule& rule : set.rules()) {
    texts.push_back(rule.has_freeze() ? absl::StrCat("freeze ", rule.freeze())
                                      : absl::StrCat("unfreeze ", rule.unfreeze()));
  }
  return Names(texts);
}

// Returns the name of the command in `muster`, with the arguments that people know it by.
std::string What(const v1::Command& command) {
  if (commands::IsOver(command)) return "an operation that is over";
  const v1::CommandRule& rule = commands::RuleOf(command);
  const std::string planned = rule.nature() == v1::CommandRule::ANSWERS ? " (only planned)" : "";
  switch (command.kind_case()) {
    case v1::Command::kSetTrainability:
      return absl::StrCat(Rules(command.set_trainability()), planned);
    case v1::Command::kSetLearningRate:
      return absl::StrCat(rule.name(), " ", command.set_learning_rate().learning_rate());
    case v1::Command::kGatherOptimizerState:
      return absl::StrCat(rule.name(), " ", command.gather_optimizer_state().file().path());
    case v1::Command::kConsolidate:
      return absl::StrCat(rule.name(), " ", command.consolidate().folder().path());
    case v1::Command::kRunStage:
      return absl::StrCat(rule.name(), " ", command.run_stage().stage());
    case v1::Command::kSkipData:
      return absl::StrCat(rule.name(), " ", command.skip_data().samples(), planned);
    case v1::Command::kCancel:
      return absl::StrCat("cancel operation ", command.cancel().target());
    default:
      return absl::StrCat(rule.name(), planned);
  }
}

std::string Operation(const std::string& job, int64_t number) {
  return absl::StrCat("operation ", job, "/", number);
}

// Returns the mark of an operation that takes effect: "set-lr 0.003 (operation JOB/4)". The text is
// the same when it takes effect again after a failure.
std::string TextOf(const v1::Command& command, const std::string& job) {
  return ValidUtf8(absl::StrCat(What(command), " (",
                                Operation(job, static_cast<int64_t>(command.number())), ")"));
}

// Returns the mark of an operation that failed: "operation JOB/4 failed: ...".
std::string TextOf(const train::CommandFinished& finished, const std::string& job) {
  return ValidUtf8(absl::StrCat(
      Operation(job, finished.number),
      absl::IsCancelled(finished.status) ? " cancelled: " : " failed: ", Message(finished.status)));
}

// Returns the mark of a change of the trained parameters.
std::string TextOf(const train::TrainabilityChange& change, const std::string& job) {
  std::vector<std::string> parts;
  if (!change.frozen.empty()) parts.push_back(absl::StrCat("frozen: ", Names(change.frozen)));
  if (!change.unfrozen.empty()) parts.push_back(absl::StrCat("unfrozen: ", Names(change.unfrozen)));
  parts.push_back(absl::StrCat("trained elements: ", change.trained_before, " before, ",
                               change.trained, " now"));
  return ValidUtf8(absl::StrCat(
      absl::StrJoin(parts, "; "), " (",
      change.command == 0 ? "asked for by the model's code" : Operation(job, change.command), ")"));
}

// Returns the mark of a checkpoint: "step-50-g1, 1234567 bytes".
std::string TextOf(const train::CheckpointWritten& written) {
  return ValidUtf8(absl::StrCat(written.path.substr(written.path.rfind('/') + 1), ", ",
                                written.bytes, " bytes", written.best ? ", the best one" : ""));
}

// Returns the mark of the beginning of a generation, which is a restart unless it is the first one.
std::string TextOf(const train::SessionStarted& started, int64_t generation, int64_t ranks,
                   const std::string& node) {
  return ValidUtf8(absl::StrCat(
      "generation ", generation, " with ", ranks, ranks == 1 ? " rank" : " ranks",
      ", rank 0 on node ", node, ", begins after step ", started.step,
      started.checkpoint_path.empty() ? "" : absl::StrCat(", from ", started.checkpoint_path)));
}

}  // namespace

Sink::Sink(Options options, train::EventSink* next)
    : options_(std::move(options)),
      next_(next),
      log_({.directory = options_.directory,
            .job = options_.job,
            .writer = WriterName(options_.node, options_.generation),
            .disk = options_.disk,
            .still_mine =
                [this] {
                  return options_.lease == nullptr ? absl::OkStatus() : options_.lease->StillMine();
                },
            .on_trouble =
                [this](const absl::Status& error, const std::optional<Steps>& unsynced) {
                  Tell("TENSORBOARD_FAILED",
                       absl::StrCat("rank 0 on node ", options_.node, ": ", Message(error),
                                    "; training goes on, and what is not written yet waits in "
                                    "memory until it can be written",
                                    unsynced.has_value()
                                        ? absl::StrCat("; measurements of ", Describe(*unsynced),
                                                       " were written and could not be synced, so "
                                                       "that they may be missing")
                                        : ""));
                },
            .on_dropped =
                [this](int64_t step) {
                  Tell("TENSORBOARD_INCOMPLETE",
                       absl::StrCat("the event files in ",
                                    FolderOf(options_.directory, options_.job), " on node ",
                                    options_.node,
                                    " are not written, or too slowly: no more measurements fit "
                                    "into memory, and the oldest ones, from step ",
                                    step, " on, are lost; `muster metrics` has them"));
                },
            .on_recovered =
                [this](const std::optional<Steps>& lost) {
                  Tell("TENSORBOARD_WORKS_AGAIN",
                       absl::StrCat("what waited is in the event files",
                                    lost.has_value()
                                        ? absl::StrCat("; measurements of ", Describe(*lost),
                                                       " may be missing; `muster metrics` has them")
                                        : ""));
                },
            .on_gap =
                [this](std::optional<int64_t> newest, int64_t step) {
                  Tell("TENSORBOARD_INCOMPLETE",
                       absl::StrCat("the event files in ",
                                    FolderOf(options_.directory, options_.job), " on node ",
                                    options_.node,
                                    newest.has_value() ? absl::StrCat(" end with step ", *newest)
                                                       : std::string(" have no step"),
                                    ", and this generation continues after step ", step,
                                    "; what is between is missing, because the files could not be "
                                    "written, or lie elsewhere"));
                }}) {}

void Sink::Report(const train::Event& event) {
  Write(event);
  next_->Report(event);
}

void Sink::Write(const train::Event& event) {
  std::visit(
      Overloaded{[this](const train::SessionStarted& started) { Started(started); },
                 [this](const v1::StepMetrics& metrics) { Measured(metrics); },
                 [this](const train::StageStarted& stage) {
                   Mark(kStagesTag, stage.step, absl::StrCat("stage ", stage.stage, " begins"));
                 },
                 [this](const train::CommandApplied& applied) { Applied(applied); },
                 [this](const train::CommandFinished& finished) { Finished(finished); },
                 [this](const train::TrainabilityReport& report) { TrainsNow(report); },
                 [this](const train::CheckpointWritten& written) {
                   // A checkpoint without bytes belongs to an earlier session.
                   if (written.bytes > 0) Mark(kCheckpointsTag, written.step, TextOf(written));
                 },
                 [](const auto&) {}},
      event);
}

void Sink::Mark(const char* tag, int64_t step, const std::string& text) {
  Event event = EventAt(step, WallTime());
  AddText(tag, text, &event);
  log_.Add(event);
}

void Sink::Started(const train::SessionStarted& started) {
  const bool continued =
      !started.checkpoint_path.empty() &&
      (options_.start.empty() || Trimmed(started.checkpoint_path) != Trimmed(options_.start));
  {
    absl::MutexLock lock(&mutex_);
    began_at_ = started.step;
    continued_ = continued;
    step_ = started.step;
  }
  Mark(kGenerationsTag, started.step,
       TextOf(started, options_.generation, options_.ranks, options_.node));
  log_.Begin(started.step, continued);
}

void Sink::Measured(const v1::StepMetrics& metrics) {
  Event event = ScalarsOf(metrics, WallTime());
  {
    absl::MutexLock lock(&mutex_);
    step_ = std::max(step_, event.step());
    const bool is_step = !metrics.has_validation() && !metrics.has_test();
    const auto later = trained_.lower_bound(event.step());
    if (is_step && later != trained_.begin()) {
      AddNumber(kTrainedTag, static_cast<double>(std::prev(later)->second), &event);
      trained_.erase(trained_.begin(), later);
    }
  }
  log_.Add(event);
}

void Sink::TrainsNow(const train::TrainabilityReport& report) {
  const auto& change = report.change;
  const bool replay =
      change.has_value() && change->command > 0 && options_.commands->Get(change->command).replay();
  {
    absl::MutexLock lock(&mutex_);
    trained_[change.has_value() ? change->step : began_at_.value_or(0)] = report.trained;
    if (!change.has_value() || IsMarked(change->step, replay)) return;
  }
  Mark(kOperationsTag, change->step, TextOf(*change, options_.job));
}

bool Sink::IsMarked(int64_t step, bool replay) const {
  return step < began_at_ || (step == began_at_ && continued_ && replay);
}

void Sink::Applied(const train::CommandApplied& applied) {
  const train::Command command = options_.commands->Get(applied.number);
  // The command is over, so an earlier session has marked it.
  if (commands::IsOver(command)) return;
  {
    absl::MutexLock lock(&mutex_);
    if (IsMarked(applied.step, command.replay())) return;
    running_[applied.number] = applied.step;
  }
  Mark(kOperationsTag, applied.step, TextOf(command, options_.job));
}

void Sink::Finished(const train::CommandFinished& finished) {
  int64_t step = 0;
  {
    absl::MutexLock lock(&mutex_);
    const auto running = running_.find(finished.number);
    if (running == running_.end()) return;
    step = running->second;
    running_.erase(running);
  }
  if (!finished.status.ok()) Mark(kOperationsTag, step, TextOf(finished, options_.job));
}

void Sink::Tell(const char* reason, const std::string& message) {
  int64_t step = 0;
  {
    absl::MutexLock lock(&mutex_);
    step = step_;
  }
  next_->Report(train::Notice{reason, absl::StrCat("metrics.tensorboard: ", message), step});
}

void Sink::Settle(absl::Duration timeout) {
  const absl::Time end = SteadyNow() + timeout;
  next_->Settle(timeout);
  log_.Sync(end - SteadyNow());
}

void Sink::Finish(absl::Duration timeout) {
  const auto lost = log_.Finish(timeout);
  if (!lost.has_value()) return;
  Tell("TENSORBOARD_INCOMPLETE",
       absl::StrCat("measurements of ", Describe(*lost), " may be missing in the event files in ",
                    FolderOf(options_.directory, options_.job), " on node ", options_.node,
                    ", which could not be written; `muster metrics` has them"));
}

}  // namespace muster::tensorboard
