// The stages `predict` of a session (docs/predict.md).
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/jobspec/inputs.h"
#include "common/jobspec/prompts.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/train/predict/predict.h"
#include "worker/train/ranks/agreed_status.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/session/session_impl.h"
#include "worker/train/step/autocast.h"

namespace muster::train {
namespace {

std::string NameOf(int64_t stage) { return absl::StrCat("stages[", stage, "].predict"); }

// The name of the array, and of the setting.
const char* NameOf(PredictStage::What what) {
  return what == PredictStage::What::kClasses ? "classes" : "logits";
}

std::string Describe(PredictStage::What what, const PredictionArray& array) {
  const bool integers = array.dtype == safetensors::DType::kI64;
  return absl::StrCat(NameOf(what), ", ", integers ? "int64 " : "float32 ",
                      safetensors::ShapeString(array.shape));
}

// As JSON.
std::string ListOf(const std::vector<int64_t>& tokens) {
  return absl::StrCat("[", absl::StrJoin(tokens, ", "), "]");
}

std::string ListOf(const jobspec::Prompts& prompts) {
  const auto list = [](std::string* text, const std::vector<int64_t>& prompt) {
    absl::StrAppend(text, ListOf(prompt));
  };
  return absl::StrCat("[", absl::StrJoin(prompts, ", ", list), "]");
}

// The contents of the file of a stage that generates.
std::string Completions(const jobspec::Prompts& prompts,
                        const std::vector<std::vector<int64_t>>& tokens) {
  std::string text = "{\"completions\": [";
  for (size_t i = 0; i < prompts.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "{\"prompt\": ", ListOf(prompts[i]),
                    ", \"tokens\": ", ListOf(tokens[i]), "}");
  }
  return absl::StrCat(text, "]}\n");
}

}  // namespace

absl::Status SessionImpl::ShareOfRank0(const absl::Status& mine, const char* what,
                                       absl::Status* told) {
  ASSIGN_OR_RETURN(
      const auto results,
      checkpoint::Exchange(*parts_.control, checkpoint::ToResult(mine), what, session_state_.step));
  *told = results[0].status();
  return absl::OkStatus();
}

PredictionTarget SessionImpl::TargetOf(const PredictStage& predict) const {
  return {.path = predict.output,
          .overwrite = predict.overwrite,
          .job_name = job_.spec.name(),
          .identity = identity_,
          .inputs = jobspec::InputFiles(job_.spec)};
}

absl::Status SessionImpl::PreparePredictions() {
  for (const PlannedStage& stage :
       RemainingStages(stages_, session_state_.step, parts_.stages_done)) {
    const auto* predict = std::get_if<PredictStage>(&stage.what);
    if (predict == nullptr) continue;
    const std::string name = NameOf(stage.index);
    const absl::Status mine =
        reports_.leader() ? PreparePredictionFile(TargetOf(*predict)) : absl::OkStatus();
    absl::Status told;
    RETURN_IF_ERROR(ShareOfRank0(mine, "outputs checked", &told));
    if (!reports_.leader()) told = ErrorOfOthers(told);
    RETURN_IF_ERROR(Annotate(told, name + ".output"));
    if (!predict->generate.has_value()) continue;
    auto request = RequestOf(*predict->generate);
    if (!request.ok()) return Annotate(request.status(), name);
    requests_[stage.index] = *std::move(request);
  }
  return absl::OkStatus();
}

absl::StatusOr<models::GenerationRequest> SessionImpl::RequestOf(const GenerateConfig& generate) {
  models::GenerationRequest request = {.prompts = generate.prompts,
                                       .max_tokens = generate.max_tokens,
                                       .sampling = generate.sampling};
  if (!generate.prompts_from.empty()) {
    // Rank 0 reads them for all: the file may be another one on another node.
    absl::StatusOr<jobspec::Prompts> read = jobspec::Prompts();
    if (reports_.leader()) read = jobspec::ReadPrompts(generate.prompts_from);
    absl::Status told;
    RETURN_IF_ERROR(ShareOfRank0(read.status(), "prompts read", &told));
    if (!reports_.leader()) told = ErrorOfOthers(told);
    RETURN_IF_ERROR(Annotate(told, "generate.prompts"));
    ASSIGN_OR_RETURN(const std::string text,
                     checkpoint::TellAll(*parts_.control, ListOf(*read), "prompts"));
    ASSIGN_OR_RETURN(request.prompts, jobspec::ParsePrompts(text));
  }
  RETURN_IF_ERROR(models::CheckGeneration(request, *model_));
  return request;
}

absl::Status SessionImpl::Predict(const PlannedStage& stage, const PredictStage& predict) {
  const std::string name = NameOf(stage.index);
  for (int attempt = 1;;) {
    Predicted end;
    RETURN_IF_ERROR(RunToEnd([&]() -> absl::StatusOr<bool> {
      if (predict.generate.has_value()) {
        ASSIGN_OR_RETURN(end, PredictTexts(name, predict, requests_.at(stage.index)));
      } else {
        ASSIGN_OR_RETURN(end, PredictSamples(name, predict));
      }
      return !end.interrupted;
    }));
    if (session_state_.stopped) return absl::OkStatus();
    if (end.file.ok()) return absl::OkStatus();
    if (attempts_.TryAgain(end.file, attempt, "writing predictions")) {
      ++attempt;
      continue;
    }
    const absl::Status failed = Annotate(end.file, name + ".output");
    // Nothing is trained again because of a file, if there is nothing left to train.
    const bool trained = !ended_early_.empty() || !FitFollows(stages_, stage.index);
    return trained ? WithCause(failed, Cause::kFinalSaveFailed) : failed;
  }
}

absl::StatusOr<SessionImpl::Predicted> SessionImpl::PredictSamples(const std::string& name,
                                                                   const PredictStage& predict) {
  reports_.Progress("predicting");
  const PredictionArray array = PredictionArrayOf(*predict_data_, model_->Input(), predict.what);
  ASSIGN_OR_RETURN(const std::string header,
                   PredictionHeader(predict.output, NameOf(predict.what), array));
  std::unique_ptr<PredictionFile> file;
  absl::Status begun;
  if (reports_.leader()) {
    auto created = PredictionFile::Create(TargetOf(predict), header.size() + array.bytes(),
                                          files::Disk::Real());
    begun = created.status();
    if (begun.ok()) begun = (*created)->WriteAt(0, header);
    if (begun.ok()) file = *std::move(created);
  }
  Predicted predicted;
  RETURN_IF_ERROR(ShareOfRank0(begun, "predictions begun", &predicted.file));
  if (!predicted.file.ok()) return predicted;

  PredictionEnd end;
  {
    RETURN_IF_ERROR(AwaitParameters());
    ASSIGN_OR_RETURN(const auto scope, passes_.Begin(training_.get()));
    const AutocastScope autocast(job_.precision, device().type());
    const PredictionPass pass = {.source = &*predict_data_,
                                 .data = "data.predict",
                                 .what = predict.what,
                                 .per_rank = job_.batch.per_rank,
                                 .step = session_state_.step,
                                 .model = model_.get(),
                                 .context = &context(),
                                 .device = device(),
                                 .communicator = parts_.control,
                                 .write =
                                     [&](uint64_t begin, std::string_view bytes) {
                                       return file->WriteAt(header.size() + begin, bytes);
                                     },
                                 .interrupted = [this] { return AskedToEnd(); }};
    ASSIGN_OR_RETURN(end, train::Predict(pass));
    RETURN_IF_ERROR(scope->End());
  }
  predicted.interrupted = end.interrupted;
  if (end.interrupted) return predicted;
  return Place({name, predict.output, Describe(predict.what, array)}, end.written, std::move(file));
}

absl::StatusOr<SessionImpl::Predicted> SessionImpl::PredictTexts(
    const std::string& name, const PredictStage& predict,
    const models::GenerationRequest& request) {
  reports_.Progress("generating");
  ASSIGN_OR_RETURN(const std::vector<std::vector<int64_t>> tokens, Generate(request));
  std::unique_ptr<PredictionFile> file;
  absl::Status written;
  if (reports_.leader()) {
    const std::string text = Completions(request.prompts, tokens);
    auto created = PredictionFile::Create(TargetOf(predict), text.size(), files::Disk::Real());
    written = created.status();
    if (written.ok()) written = (*created)->WriteAt(0, text);
    if (written.ok()) file = *std::move(created);
  }
  const size_t prompts = request.prompts.size();
  return Place({name, predict.output,
                absl::StrCat(request.max_tokens, " new tokens for each of ", prompts,
                             prompts == 1 ? " prompt" : " prompts")},
               written, std::move(file));
}

absl::StatusOr<SessionImpl::Predicted> SessionImpl::Place(const Prediction& prediction,
                                                          absl::Status written,
                                                          std::unique_ptr<PredictionFile> file) {
  bool same = false;
  if (reports_.leader() && written.ok()) {
    // A lost lease is no failed prediction: the next generation predicts.
    if (parts_.lease != nullptr) RETURN_IF_ERROR(parts_.lease->StillMine());
    const auto placed = file->Place();
    written = placed.status();
    same = placed.ok() && *placed == PredictionFile::Placed::kSame;
  }
  // A file that got no name is removed before the others hear of it: if one of them ends the job,
  // this process may be killed at once.
  file.reset();
  Predicted predicted;
  RETURN_IF_ERROR(ShareOfRank0(written, "predictions written", &predicted.file));
  if (!predicted.file.ok()) return predicted;
  if (reports_.leader()) {
    reports_.Report(
        Notice{"PREDICTIONS_WRITTEN",
               absl::StrCat(prediction.stage, ": ", prediction.path, " has ", prediction.contents,
                            same ? "; it was there already, with the same bytes" : ""),
               session_state_.step});
  }
  return predicted;
}

absl::StatusOr<bool> SessionImpl::AskedToEnd() {
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  return plan.preempted || StopsNow(plan);
}

absl::StatusOr<bool> SessionImpl::PassMustEnd() {
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  return (plan.preempted && has_checkpoints()) || StopsNow(plan);
}

bool SessionImpl::StopsNow(const RollCallPlan& plan) const {
  for (int64_t number = schedule_.position().taken + 1; number <= plan.apply_commands; ++number) {
    const Command command = parts_.commands->Get(number);
    const bool now = static_cast<int64_t>(command.at_step()) <= session_state_.step;
    if (now && command.has_stop()) return true;
  }
  return false;
}

}  // namespace muster::train
