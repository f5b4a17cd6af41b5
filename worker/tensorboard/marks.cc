#include "worker/tensorboard/marks.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/commands/command_rule.h"
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

std::string Rules(const v1::SetTrainabilityCommand& set) {
  std::vector<std::string> texts;
  for (const v1::TrainableRule& rule : set.rules()) {
    texts.push_back(rule.has_freeze() ? absl::StrCat("freeze ", rule.freeze())
                                      : absl::StrCat("unfreeze ", rule.unfreeze()));
  }
  return Names(texts);
}

// The command of `muster`, with what people know it by.
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
    case v1::Command::kCancel:
      return absl::StrCat("cancel operation ", command.cancel().target());
    default:
      return absl::StrCat(rule.name(), planned);
  }
}

std::string Operation(const std::string& job, int64_t number) {
  return absl::StrCat("operation ", job, "/", number);
}

}  // namespace

std::string TextOf(const v1::Command& command, const std::string& job) {
  return ValidUtf8(absl::StrCat(What(command), " (",
                                Operation(job, static_cast<int64_t>(command.number())), ")"));
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
