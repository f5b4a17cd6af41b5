#include "client/cli/terminal/operation_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/metrics_text.h"
#include "client/cli/terminal/output.h"
#include "common/printable/printable.h"
#include "common/utf8/utf8.h"

namespace muster::cli {
namespace {

// "froze 4 parameters, unfroze 2": counts, and one of the names.
std::string Counted(const char* what, uint64_t count,
                    const google::protobuf::RepeatedPtrField<std::string>& names) {
  if (count == 0) return "";
  return absl::StrCat(what, " ", count, count == 1 ? " parameter (" : " parameters (", names[0],
                      count == 1 ? ")" : ", ...)");
}

std::string StageText(const v1::StageResult& stage) {
  const v1::Evaluation& pass = stage.evaluation();
  std::string text = absl::StrCat(stage.stage(), ": loss ", LossText(pass.loss()));
  if (pass.has_perplexity()) absl::StrAppendFormat(&text, ", perplexity %.4g", pass.perplexity());
  return absl::StrCat(text, AccuracyText(pass), ", ", pass.samples(), " samples");
}

// The beginning of the sample, in one line.
std::string SampleText(const v1::SampleResult& sample) {
  constexpr size_t kShown = 60;  // bytes
  const bool ids = sample.text().empty();
  std::string shown = ids ? absl::StrJoin(sample.tokens(), " ") : sample.text();
  const bool whole = shown.size() <= kShown;
  if (!whole) {
    shown.resize(kShown);
    shown.resize(ids ? shown.rfind(' ') : ValidUtf8Prefix(shown));
  }
  if (!ids) shown = absl::StrCat("\"", PrintableLine(shown), "\"");
  return absl::StrCat(sample.tokens_size(), " tokens: ", shown, whole ? "" : " ...");
}

std::string PlanText(const v1::TrainabilityPlan& plan) {
  std::string text = ChangeText(plan.change());
  uint64_t before = 0;
  uint64_t after = 0;
  for (const v1::RankPlan& rank : plan.ranks()) {
    before = std::max<uint64_t>(before, rank.state_bytes_before());
    after = std::max<uint64_t>(after, rank.state_bytes());
  }
  return absl::StrCat(text, ", ", HumanBytes(after),
                      " of parameters, gradients and optimizer state per rank (now ",
                      HumanBytes(before), ")");
}

std::string ResultText(const v1::OperationResult& result) {
  switch (result.kind_case()) {
    case v1::OperationResult::kCheckpoint:
      return absl::StrCat(": ", result.checkpoint().path());
    case v1::OperationResult::kLearningRate: {
      const auto& rate = result.learning_rate();
      return absl::StrCat(": ", rate.old_rate(), " -> ", rate.new_rate(), ", next step ",
                          rate.next_step());
    }
    case v1::OperationResult::kTrainability:
      return absl::StrCat(": ", ChangeText(result.trainability()));
    case v1::OperationResult::kTrainabilityPlan:
      return absl::StrCat(": would be ", PlanText(result.trainability_plan()));
    case v1::OperationResult::kGatheredOptimizerState: {
      const auto& gathered = result.gathered_optimizer_state();
      std::string text = absl::StrCat(": ", gathered.path(), ", ", HumanBytes(gathered.bytes()));
      if (gathered.write_seconds() > 0) {
        absl::StrAppendFormat(
            &text, ", written in %.1f s (%s/s)", gathered.write_seconds(),
            HumanBytes(static_cast<uint64_t>(gathered.bytes() / gathered.write_seconds())));
      }
      absl::StrAppendFormat(&text, ", training waited %.1f s", gathered.seconds());
      return text;
    }
    case v1::OperationResult::kConsolidatedModel: {
      const auto& model = result.consolidated_model();
      std::string text = absl::StrFormat(
          ": %s, %s in %d files, written in %.1f s (%s/s), training waited %.1f s", model.path(),
          HumanBytes(model.bytes()), model.files_size(), model.write_seconds(),
          HumanBytes(static_cast<uint64_t>(model.bytes() / std::max(model.write_seconds(), 1e-3))),
          model.stall_seconds());
      for (const std::string& note : model.notes()) absl::StrAppend(&text, "; ", note);
      return text;
    }
    case v1::OperationResult::kStage:
      return absl::StrCat(": ", StageText(result.stage()));
    case v1::OperationResult::kSample:
      return absl::StrCat(": ", SampleText(result.sample()));
    case v1::OperationResult::kSkippedData: {
      const auto& skipped = result.skipped_data();
      return absl::StrCat(": ", skipped.samples(), " samples, from sample ", skipped.first(),
                          " of epoch ", skipped.first_epoch(), " to sample ", skipped.last(),
                          " of epoch ", skipped.last_epoch());
    }
    case v1::OperationResult::KIND_NOT_SET:
      return "";
  }
  return "";
}

// " after step 7"; empty if the operation did not take effect at a step.
std::string AfterStep(const v1::Operation& operation) {
  const v1::OperationResult& result = operation.result();
  // The step in such a result may be of a later generation. applied_at_step is of the generation in
  // which the operation first took effect.
  if (result.has_stage()) return absl::StrCat(" after step ", result.stage().step());
  if (result.has_sample()) return absl::StrCat(" after step ", result.sample().step());
  if (!operation.has_applied_at_step()) return "";
  return absl::StrCat(" after step ", operation.applied_at_step());
}

std::string Standing(const v1::Operation& operation) {
  if (operation.has_error()) return absl::StrCat("failed: ", operation.error().message());
  if (!operation.done()) return operation.progress();
  return absl::StrCat("done", AfterStep(operation), ResultText(operation.result()));
}

}  // namespace

std::string ChangeText(const v1::TrainabilityChange& change) {
  std::vector<std::string> parts;
  for (std::string part : {Counted("froze", change.frozen_count(), change.frozen()),
                           Counted("unfroze", change.unfrozen_count(), change.unfrozen())}) {
    if (!part.empty()) parts.push_back(std::move(part));
  }
  if (parts.empty()) parts.push_back("nothing changed");
  parts.push_back(absl::StrCat(change.trainable_params(), " elements trained (before ",
                               change.trainable_params_before(), ")"));
  parts.push_back(absl::StrCat(HumanBytes(change.bytes_moved()), " moved"));
  return absl::StrCat("version ", change.version(), ": ", absl::StrJoin(parts, ", "));
}

std::string KindName(v1::Operation::Kind kind) {
  return absl::AsciiStrToLower(v1::Operation::Kind_Name(kind));
}

std::string OperationLine(const v1::Operation& operation) {
  return absl::StrCat("operation ", operation.name(), ": ", KindName(operation.kind()),
                      operation.target().empty() ? "" : " of " + operation.target(), ": ",
                      Standing(operation));
}

std::string OperationTable(const std::vector<v1::Operation>& operations, absl::Time now) {
  Table table({"OPERATION", "KIND", "STEP", "BY", "ASKED", "STANDING"});
  for (const v1::Operation& operation : operations) {
    const std::string by = WhoAsked(operation.requester(), operation.requested_by());
    table.Add({operation.name(), KindName(operation.kind()),
               operation.has_applied_at_step() ? absl::StrCat(operation.applied_at_step()) : "-",
               by.empty() ? "-" : by, Ago(operation.create_time(), now), Standing(operation)});
  }
  return table.Text();
}

}  // namespace muster::cli
