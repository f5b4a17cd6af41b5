#include "worker/train/predict/predictor.h"

#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/jobspec/prompts.h"
#include "common/jobspec/rules.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/exchange.h"
#include "worker/train/evaluate/text_coder.h"
#include "worker/train/predict/predict.h"
#include "worker/train/predict/prediction_file.h"
#include "worker/train/ranks/agreement.h"
#include "worker/train/step/autocast.h"

namespace muster::train {
namespace {

// Returns the name of the array, which is also the value of the setting.
const char* NameOf(PredictStage::What what) {
  return what == PredictStage::What::kClasses ? "classes" : "logits";
}

std::string Describe(PredictStage::What what, const PredictionArray& array) {
  const bool integers = array.dtype == safetensors::DType::kI64;
  return absl::StrCat(NameOf(what), ", ", integers ? "int64 " : "float32 ",
                      safetensors::ShapeString(array.shape));
}

// Returns the tokens as a JSON list.
std::string ListOf(const std::vector<int64_t>& tokens) {
  return absl::StrCat("[", absl::StrJoin(tokens, ", "), "]");
}

std::string ListOf(const jobspec::TokenLists& prompts) {
  const auto list = [](std::string* text, const std::vector<int64_t>& prompt) {
    absl::StrAppend(text, ListOf(prompt));
  };
  return absl::StrCat("[", absl::StrJoin(prompts, ", ", list), "]");
}

// Returns the contents of the file of a stage that generates.
std::string Completions(const jobspec::TokenLists& prompts, const jobspec::TokenLists& tokens,
                        SessionGenerator& generator) {
  std::string text = "{\"completions\": [";
  for (size_t i = 0; i < prompts.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "{\"prompt\": ", ListOf(prompts[i]),
                    ", \"tokens\": ", ListOf(tokens[i]));
    if (const auto made = generator.TextOf(tokens[i])) {
      absl::StrAppend(&text,
                      ", \"text\": ", nlohmann::json(*made).dump(-1, ' ', /*ensure_ascii=*/true));
    }
    text += "}";
  }
  return absl::StrCat(text, "]}\n");
}

// Reads the prompts of a file, and makes tokens of texts.
absl::StatusOr<jobspec::TokenLists> ReadTokens(const std::string& path, const Job& job) {
  ASSIGN_OR_RETURN(const jobspec::Prompts prompts, jobspec::ReadPrompts(path));
  TextCoder texts(job.spec.model());
  jobspec::TokenLists lists;
  for (const jobspec::Prompt& prompt : prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      auto tokens = texts.TokensOf(*text);
      if (!tokens.ok()) {
        return Annotate(tokens.status(), absl::StrCat(path, ": prompts[", lists.size(), "]"));
      }
      lists.push_back(*std::move(tokens));
    } else {
      lists.push_back(std::get<std::vector<int64_t>>(prompt));
    }
  }
  return lists;
}

PredictionTarget TargetOf(const PredictStage& predict, const Job& job, const Identity& identity) {
  return {.path = predict.output,
          .overwrite = predict.overwrite,
          .job_name = job.spec.name(),
          .identity = identity,
          .inputs = jobspec::InputFiles(job.spec)};
}

absl::StatusOr<models::GenerationRequest> RequestOf(const GenerateConfig& generate, const Job& job,
                                                    const models::Model& model, int64_t step,
                                                    comm::Communicator& control) {
  models::GenerationRequest request = {.prompts = generate.prompts,
                                       .max_tokens = generate.max_tokens,
                                       .sampling = generate.sampling};
  if (!generate.prompts_from.empty()) {
    // Rank 0 reads the files for all ranks, because they may differ on another node.
    const bool leader = control.rank() == 0;
    absl::StatusOr<jobspec::TokenLists> read = jobspec::TokenLists();
    if (leader) read = ReadTokens(generate.prompts_from, job);
    absl::Status told;
    RETURN_IF_ERROR(checkpoint::TellAll(control, read.status(), "prompts read", step, &told));
    if (!leader) told = ErrorOfOthers(told);
    RETURN_IF_ERROR(Annotate(told, "generate.prompts"));
    ASSIGN_OR_RETURN(const std::string text,
                     checkpoint::TellAll(control, ListOf(*read), "prompts"));
    ASSIGN_OR_RETURN(const jobspec::Prompts lists, jobspec::ParsePrompts(text));
    for (const jobspec::Prompt& one : lists) {
      request.prompts.push_back(std::get<std::vector<int64_t>>(one));
    }
  }
  RETURN_IF_ERROR(models::CheckGeneration(request, model));
  return request;
}

struct Prediction {
  std::string stage;
  std::string path;
  std::string contents;  // a description, for the event
};

// Gives rank 0's file its final name. If `written` is OK, all bytes of the file are written.
absl::StatusOr<Predicted> Place(const PredictDependencies& deps, const Prediction& prediction,
                                absl::Status written, std::unique_ptr<PredictionFile> file) {
  bool same = false;
  if (deps.forward.reports->leader() && written.ok()) {
    // A lost lease is not a failed prediction: the next generation predicts.
    if (deps.lease != nullptr) RETURN_IF_ERROR(deps.lease->StillMine());
    const auto placed = file->Place();
    written = placed.status();
    same = placed.ok() && *placed == PredictionFile::Placed::kSame;
  }
  // A file without its final name is removed before the other ranks hear of the error. A rank that
  // hears of it may end the job, and this process may then be killed.
  file.reset();
  Predicted predicted;
  RETURN_IF_ERROR(checkpoint::TellAll(*deps.forward.control, written, "predictions written",
                                      deps.forward.session_state->step, &predicted.file));
  if (!predicted.file.ok()) return predicted;
  deps.forward.reports->Report(
      Notice{"PREDICTIONS_WRITTEN",
             absl::StrCat(prediction.stage, ": ", prediction.path, " has ", prediction.contents,
                          same ? "; it was there already, with the same bytes" : ""),
             deps.forward.session_state->step});
  return predicted;
}

absl::StatusOr<Predicted> PredictSamples(const PredictDependencies& deps, const std::string& name,
                                         const PredictStage& predict) {
  deps.forward.reports->Progress("predicting");
  LiveState& live = *deps.forward.live;
  const int64_t step = deps.forward.session_state->step;
  const PredictionArray array = PredictionArrayOf(*deps.data, live.model().Input(), predict.what);
  ASSIGN_OR_RETURN(const std::string header,
                   PredictionHeader(predict.output, NameOf(predict.what), array));
  std::unique_ptr<PredictionFile> file;
  absl::Status begun;
  if (deps.forward.reports->leader()) {
    auto created = PredictionFile::Create(TargetOf(predict, *deps.forward.job, deps.identity),
                                          header.size() + array.bytes(), files::Disk::Real());
    begun = created.status();
    if (begun.ok()) begun = (*created)->WriteAt(0, header);
    if (begun.ok()) file = *std::move(created);
  }
  Predicted predicted;
  RETURN_IF_ERROR(checkpoint::TellAll(*deps.forward.control, begun, "predictions begun", step,
                                      &predicted.file));
  if (!predicted.file.ok()) return predicted;

  PredictionEnd end;
  {
    RETURN_IF_ERROR(live.AwaitParameters());
    ASSIGN_OR_RETURN(const auto scope, deps.forward.passes->Begin(live.training()));
    const AutocastScope autocast(deps.forward.job->numerics.precision, live.device().type());
    const PredictionPass pass = {
        .source = deps.data,
        .data = "data.predict",
        .what = predict.what,
        .per_rank = deps.forward.job->batch.per_rank,
        .step = step,
        .model = &live.model(),
        .context = &live.context(),
        .device = live.device(),
        .communicator = deps.forward.control,
        .write =
            [&](uint64_t begin, std::string_view bytes) {
              return file->WriteAt(header.size() + begin, bytes);
            },
        .interrupted = [calls = deps.calls] { return calls->AskedToEnd(); }};
    ASSIGN_OR_RETURN(end, train::Predict(pass));
    RETURN_IF_ERROR(scope->End());
  }
  predicted.interrupted = end.interrupted;
  if (end.interrupted) return predicted;
  return Place(deps, {name, predict.output, Describe(predict.what, array)}, end.written,
               std::move(file));
}

absl::StatusOr<Predicted> PredictTexts(const PredictDependencies& deps, const std::string& name,
                                       const PredictStage& predict,
                                       const models::GenerationRequest& request) {
  deps.forward.reports->Progress("generating");
  ASSIGN_OR_RETURN(const std::vector<std::vector<int64_t>> tokens,
                   deps.generator->Generate(request));
  std::unique_ptr<PredictionFile> file;
  absl::Status written;
  if (deps.forward.reports->leader()) {
    const std::string text = Completions(request.prompts, tokens, *deps.generator);
    auto created = PredictionFile::Create(TargetOf(predict, *deps.forward.job, deps.identity),
                                          text.size(), files::Disk::Real());
    written = created.status();
    if (written.ok()) written = (*created)->WriteAt(0, text);
    if (written.ok()) file = *std::move(created);
  }
  const size_t prompts = request.prompts.size();
  return Place(deps,
               {name, predict.output,
                absl::StrCat(request.max_tokens, " new tokens for each of ", prompts,
                             prompts == 1 ? " prompt" : " prompts")},
               written, std::move(file));
}

}  // namespace

std::string NameOfPrediction(int64_t stage) { return absl::StrCat("stages[", stage, "].predict"); }

absl::StatusOr<GenerationRequests> PreparePredictions(const std::vector<PlannedStage>& stages,
                                                      const Job& job, const Identity& identity,
                                                      const models::Model& model, int64_t step,
                                                      comm::Communicator& control) {
  const bool leader = control.rank() == 0;
  GenerationRequests requests;
  for (const PlannedStage& stage : stages) {
    const auto* predict = std::get_if<PredictStage>(&stage.what);
    if (predict == nullptr) continue;
    const std::string name = NameOfPrediction(stage.index);
    const absl::Status mine =
        leader ? PreparePredictionFile(TargetOf(*predict, job, identity)) : absl::OkStatus();
    absl::Status told;
    RETURN_IF_ERROR(checkpoint::TellAll(control, mine, "outputs checked", step, &told));
    if (!leader) told = ErrorOfOthers(told);
    RETURN_IF_ERROR(Annotate(told, name + ".output"));
    if (!predict->generate.has_value()) continue;
    auto request = RequestOf(*predict->generate, job, model, step, control);
    if (!request.ok()) return Annotate(request.status(), name);
    requests[stage.index] = *std::move(request);
  }
  return requests;
}

absl::StatusOr<Predicted> RunPrediction(const PredictDependencies& deps, int64_t stage,
                                        const PredictStage& predict) {
  const std::string name = NameOfPrediction(stage);
  if (!predict.generate.has_value()) return PredictSamples(deps, name, predict);
  return PredictTexts(deps, name, predict, deps.requests.at(stage));
}

}  // namespace muster::train
