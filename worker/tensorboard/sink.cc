#include "worker/tensorboard/sink.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "worker/tensorboard/folder.h"
#include "worker/tensorboard/marks.h"
#include "worker/tensorboard/scalars.h"

namespace muster::tensorboard {
namespace {

double WallTime() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

// The same path without '/' at its end.
std::string Trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Part of a file's name: a node may have any name.
std::string WriterName(const std::string& node, int64_t generation) {
  std::string name = absl::StrCat(node, ".", getpid(), ".g", generation);
  for (char& letter : name) {
    if (!absl::ascii_isalnum(letter) && letter != '.' && letter != '-') letter = '_';
  }
  return name;
}

std::string Describe(const LostSteps& lost) {
  if (lost.first == lost.last) return absl::StrCat("step ", lost.first);
  return absl::StrCat("steps ", lost.first, " to ", lost.last);
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
                [this](const absl::Status& error) {
                  Tell("TENSORBOARD_FAILED",
                       absl::StrCat("rank 0 on node ", options_.node, ": ", Message(error),
                                    "; training goes on, and what is not written is kept in memory "
                                    "until it can be written"));
                },
            .on_recovered =
                [this](const std::optional<LostSteps>& dropped) {
                  Tell("TENSORBOARD_WORKS_AGAIN",
                       absl::StrCat("the event files are written again",
                                    dropped.has_value()
                                        ? absl::StrCat("; measurements of ", Describe(*dropped),
                                                       " are missing, because too many had to be "
                                                       "kept in memory")
                                        : "; nothing is missing"));
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
                 [this](const v1::StepMetrics& metrics) {
                   {
                     absl::MutexLock lock(&mutex_);
                     step_ = std::max(step_, static_cast<int64_t>(metrics.step()));
                   }
                   log_.Add(ScalarsOf(metrics, WallTime()));
                 },
                 [this](const train::StageStarted& stage) {
                   Mark(kStagesTag, stage.step, absl::StrCat("stage ", stage.stage, " begins"));
                 },
                 [this](const train::CommandApplied& applied) { Applied(applied); },
                 [this](const train::CommandFinished& finished) { Finished(finished); },
                 [this](const train::TrainabilityReport& report) {
                   int64_t step = 0;
                   {
                     absl::MutexLock lock(&mutex_);
                     step = report.change.has_value() ? report.change->step : began_at_.value_or(0);
                   }
                   if (report.change.has_value()) {
                     Mark(kOperationsTag, step, TextOf(*report.change, options_.job));
                   }
                   log_.Add({{.step = step,
                              .wall_time = WallTime(),
                              .tag = "train/trainable_parameters",
                              .value = static_cast<double>(report.trained)}});
                 },
                 [this](const train::CheckpointWritten& written) {
                   // Without bytes it is one of an earlier session.
                   if (written.bytes > 0) Mark(kCheckpointsTag, written.step, TextOf(written));
                 },
                 [](const auto&) {}},
      event);
}

void Sink::Mark(const char* tag, int64_t step, std::string text) {
  log_.Add({{.step = step, .wall_time = WallTime(), .tag = tag, .value = std::move(text)}});
}

void Sink::Started(const train::SessionStarted& started) {
  {
    absl::MutexLock lock(&mutex_);
    began_at_ = started.step;
    step_ = started.step;
  }
  const bool continued =
      !started.checkpoint_path.empty() &&
      (options_.start.empty() || Trimmed(started.checkpoint_path) != Trimmed(options_.start));
  Mark(kGenerationsTag, started.step,
       TextOf(started, options_.generation, options_.ranks, options_.node));
  log_.Begin(started.step, continued);
}

void Sink::Applied(const train::CommandApplied& applied) {
  const train::Command command = options_.commands->Get(applied.number);
  // It is over: an earlier session has marked it.
  if (std::holds_alternative<train::NoCommand>(command.what)) return;
  {
    absl::MutexLock lock(&mutex_);
    // Likewise.
    if (applied.step < began_at_.value_or(0)) return;
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
