#include "worker/tensorboard/marks.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "common/utf8/utf8.h"

namespace muster::tensorboard {
namespace {

constexpr size_t kShownNames = 3;

std::string Names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kShownNames);
  std::string text = absl::StrJoin(names.begin(), names.begin() + shown, ", ");
  if (names.size() > shown) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

std::string Rules(const std::vector<TrainableRule>& rules) {
  std::vector<std::string> texts;
  for (const TrainableRule& rule : rules) {
    texts.push_back(absl::StrCat(rule.freeze ? "freeze " : "unfreeze ", rule.pattern));
  }
  return Names(texts);
}

std::string What(const train::Command& command) {
  return std::visit(
      Overloaded{
          [](const train::NoCommand&) -> std::string { return "an operation that is over"; },
          [](const train::StopCommand&) -> std::string { return "stop"; },
          [](const train::SaveCheckpointCommand&) -> std::string { return "checkpoint"; },
          [](const train::GatherOptimizerStateCommand& gather) {
            return absl::StrCat("gather-optimizer-state ", gather.path);
          },
          [](const train::ConsolidateCommand& consolidate) {
            return absl::StrCat("consolidate ", consolidate.path);
          },
          [](const train::SetLearningRateCommand& set) {
            return absl::StrCat("set-lr ", set.rate);
          },
          [](const train::SetTrainabilityCommand& set) {
            return absl::StrCat(Rules(set.rules), set.dry_run ? " (only planned)" : "");
          },
          [](const train::RefreshCommand&) -> std::string { return "refresh"; },
          [](const train::RunStageCommand& run) { return absl::StrCat("stage ", run.stage); },
          [](const train::SampleCommand&) -> std::string { return "sample"; },
          [](const train::PauseCommand&) -> std::string { return "pause"; },
          [](const train::ResumeCommand&) -> std::string { return "resume"; },
          [](const train::CancelCommand& cancel) {
            return absl::StrCat("cancel operation ", cancel.target);
          }},
      command.what);
}

std::string Operation(const std::string& job, int64_t number) {
  return absl::StrCat("operation ", job, "/", number);
}

}  // namespace

std::string TextOf(const train::Command& command, const std::string& job) {
  return ValidUtf8(absl::StrCat(What(command), " (", Operation(job, command.number), ")"));
}

std::string TextOf(const train::CommandFinished& finished, const std::string& job) {
  return ValidUtf8(absl::StrCat(
      Operation(job, finished.number),
      absl::IsCancelled(finished.status) ? " cancelled: " : " failed: ", Message(finished.status)));
}

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

std::string TextOf(const train::CheckpointWritten& written) {
  return ValidUtf8(absl::StrCat(written.path.substr(written.path.rfind('/') + 1), ", ",
                                written.bytes, " bytes", written.best ? ", the best one" : ""));
}

std::string TextOf(const train::SessionStarted& started, int64_t generation, int64_t ranks,
                   const std::string& node) {
  return ValidUtf8(absl::StrCat(
      "generation ", generation, " with ", ranks, ranks == 1 ? " rank" : " ranks",
      ", rank 0 on node ", node, ", begins after step ", started.step,
      started.checkpoint_path.empty() ? "" : absl::StrCat(", from ", started.checkpoint_path)));
}

}  // namespace muster::tensorboard
