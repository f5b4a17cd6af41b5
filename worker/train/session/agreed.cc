#include "worker/train/session/agreed.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/jobspec/changes.h"
#include "common/jobspec/rules.h"
#include "common/status/status.h"
#include "worker/train/job/model_files.h"
#include "worker/train/job/stages.h"
#include "worker/train/ranks/agreement.h"
#include "worker/train/save/background.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

// Returns what all ranks must have read from the weights file.
std::vector<jobspec::Line> LinesOfWeights(const checkpoint::WeightsReport& report) {
  std::vector<jobspec::Line> lines;
  for (const std::string& name : report.taken) lines.push_back({absl::CEscape(name), "taken"});
  for (const std::string& name : report.initial) lines.push_back({absl::CEscape(name), "initial"});
  return lines;
}

// Logs and reports `text`.
void Tell(const Opened& opened, spdlog::level::level_enum level, const char* reason,
          const std::string& text) {
  spdlog::log(level, "{}", text);
  opened.reports.Report(Notice{reason, text, opened.state.step});
}

// Reports what was taken from the weights file, and compares it on all ranks.
absl::Status AgreeOnWeights(const Agreed& agreed) {
  const Opened& opened = *agreed.opened;
  if (!agreed.weights.has_value()) return absl::OkStatus();
  const checkpoint::WeightsReport& report = agreed.weights->report();
  const char* const name = WeightsField(opened.job.spec.model());
  if (opened.leader()) {
    if (opened.job.spec.model().has_weights_from() || !report.shortened.empty() ||
        !report.padded.empty()) {
      Tell(opened, spdlog::level::info, "WEIGHTS_TAKEN",
           absl::StrCat(name, ": ", Describe(report)));
    }
    if (!report.other_config.empty()) {
      Tell(opened, spdlog::level::warn, "WEIGHTS_OF_ANOTHER_MODEL",
           absl::StrCat(name, ": ", report.other_config));
    }
  }
  // With another file on some node, the ranks would have parts of different models.
  return AgreeOn("the weights", LinesOfWeights(report), opened.parts.control);
}

const char* NameOf(Precision precision) {
  switch (precision) {
    case Precision::kFloat32:
      return "float32";
    case Precision::kBfloat16:
      return "bfloat16";
    case Precision::kFloat16:
      return "float16";
  }
  return "";
}

absl::Status MakeModel(Agreed* agreed) {
  const Opened& opened = *agreed->opened;
  const bool in_shards = opened.in_shards();
  models::DeferredValues& deferred = agreed->deferred;
  ASSIGN_OR_RETURN(agreed->model,
                   BuildModel(opened.job, in_shards ? &deferred : nullptr, &agreed->weights));
  const models::Model& model = *agreed->model;
  if (opened.leader() && !deferred.refusal().empty()) {
    const std::string text = absl::StrCat(
        "the model is made whole on every rank before it is sharded: ", deferred.refusal());
    spdlog::warn("model: {}", text);
    opened.reports.Report(Notice{"MODEL_MADE_WHOLE", text, opened.state.step});
  }
  RETURN_IF_ERROR(model.CheckPrecision(NameOf(opened.job.numerics.precision)));
  MoveTo(opened.device(), model, in_shards ? Moved::kBuffers : Moved::kAll);
  RETURN_IF_ERROR(AgreeOn("the model", LinesOf(model), opened.parts.control));
  RETURN_IF_ERROR(AgreeOnWeights(*agreed));
  auto trained = TrainedParameters::Create(model.Parameters(), opened.job.model.trainable);
  if (!trained.ok()) return Annotate(trained.status(), "trainable.rules");
  agreed->trained = *std::move(trained);
  agreed->finite = std::make_unique<FiniteCheck>(model, opened.device());
  return absl::OkStatus();
}

// Opens a data set and checks the order of its rows against the model's input. A collective.
absl::StatusOr<RankData> OpenSet(const Agreed& agreed, const char* name, const DataConfig& config,
                                 data::Emptiness emptiness,
                                 data::Labels labels = data::Labels::kNeeded) {
  const Opened& opened = *agreed.opened;
  models::InputSpec input = agreed.model->Input();
  // Tokens that the export leaves out may not be used.
  const auto& weights_export = opened.job.weights_export;
  const int64_t exported = weights_export.has_value() ? weights_export->vocab_size : 0;
  if (exported > 0) input.vocab_size = std::min(input.vocab_size, exported);
  ASSIGN_OR_RETURN(RankData data,
                   OpenRankData(name, config, input, emptiness, *opened.parts.control, labels));
  const at::Tensor blank = data.dataset->Blank(1).inputs;
  const absl::Status mine = CheckRowShape(opened.job.spec.model(), blank.sizes().slice(1).vec());
  RETURN_IF_ERROR(
      AgreedStatus(Annotate(mine, name), "the shape of the rows", *opened.parts.control));
  return data;
}

absl::Status OpenData(Agreed* agreed) {
  const Job& job = agreed->opened->job;
  // A rank's own files may be empty if a rank without input takes part in training.
  const bool joins =
      job.batch.last == data::Last::kUneven && !job.batch.uneven_inputs.stop_at_first;
  const data::Emptiness emptiness = joins ? data::Emptiness::kAllowed : data::Emptiness::kRefused;
  DataSets& sets = agreed->data;
  if (job.data.validate.has_value()) {
    ASSIGN_OR_RETURN(sets.validate,
                     OpenSet(*agreed, "data.validate", *job.data.validate, emptiness));
  }
  if (job.data.test.has_value()) {
    ASSIGN_OR_RETURN(sets.test, OpenSet(*agreed, "data.test", *job.data.test, emptiness));
  }
  if (job.data.predict.has_value() && agreed->model->Input().own_loss) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.predict: ", agreed->model->name(),
                     ": the model returns its loss, not logits, so it cannot predict; export it "
                     "without a loss"));
  }
  if (job.data.predict.has_value()) {
    ASSIGN_OR_RETURN(sets.predict, OpenSet(*agreed, "data.predict", *job.data.predict,
                                           data::Emptiness::kAllowed, data::Labels::kIgnored));
  }
  if (!AnyFit(job.stages)) return absl::OkStatus();
  if (agreed->model->RunsCollectives() && job.batch.last == data::Last::kUneven) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch.last: found uneven, but the model ", agreed->model->kind(),
                     " runs collectives of its own, in which a rank without input would not take "
                     "part; allowed: drop, pad"));
  }
  ASSIGN_OR_RETURN(sets.train, OpenSet(*agreed, "data.train", *job.data.train, emptiness));
  return absl::OkStatus();
}

// Reports that the data were made with another tokenizer than the model's own. This is no error:
// the same tokenizer may have been written again, in other bytes.
void CompareTokenizers(const Agreed& agreed) {
  const Opened& opened = *agreed.opened;
  const v1::ModelSpec& model = opened.job.spec.model();
  const tokenizer::Source& of_data = agreed.tokenizer;
  if (!opened.leader() || !of_data.known()) return;
  std::string other = "model.tokenizer is bytes";
  if (model.tokenizer() != v1::ModelSpec::BYTES) {
    const std::string path = TokenizerPath(model);
    if (path.empty()) return;
    const auto file = files::ReadFile(path);
    if (!file.ok() || files::HashBytes(file->data(), file->size()) == of_data.hash) return;
    other = absl::StrCat("the model has ", path, ", with other contents");
  }
  Tell(opened, spdlog::level::warn, "TOKENIZER_DIFFERS",
       absl::StrCat("the data were made with the tokenizer ", of_data.path, "; ", other,
                    "; check that the tokens mean the same in both"));
}

// Compares the tokenizers and the sizes of the data sets that all ranks share.
absl::Status AgreeOnData(Agreed* agreed) {
  const Opened& opened = *agreed->opened;
  std::vector<std::pair<const char*, const RankData*>> all;  // "data.train"
  const auto add = [&all](const char* name, const std::optional<RankData>& data) {
    if (data.has_value()) all.push_back({name, &*data});
  };
  add("data.train", agreed->data.train);
  add("data.validate", agreed->data.validate);
  add("data.test", agreed->data.test);
  add("data.predict", agreed->data.predict);

  std::vector<TokenizedSet> tokenized;
  for (const auto& [name, data] : all) tokenized.push_back({name, data->dataset->tokenizer()});
  ASSIGN_OR_RETURN(agreed->tokenizer, TokenizerOfJob(tokenized, *opened.parts.control));
  CompareTokenizers(*agreed);

  std::vector<jobspec::Line> sizes;
  for (const auto& [name, data] : all) {
    ReportNotes(name, *data, opened.identity.rank, opened.state.step, opened.reports);
    // The ranks have already exchanged the sizes of their own files.
    if (!data->own_sizes.empty()) continue;
    sizes.push_back({name, absl::StrCat(data->dataset->size(), " samples")});
  }
  return AgreeOn("the data", sizes, opened.parts.control);
}

}  // namespace

WeightsExport ExportOf(const Opened& opened, const tokenizer::Source* tokenizer) {
  return WeightsExport({opened.identity, *opened.job.weights_export, opened.parts.control,
                        opened.communicators(), opened.parts.export_gate, opened.parts.lease,
                        &opened.attempts, &opened.state, &opened.reports,
                        jobspec::InputFiles(opened.job.spec), tokenizer});
}

absl::StatusOr<std::unique_ptr<Agreed>> Agree(std::unique_ptr<Opened> start) {
  auto agreed = std::make_unique<Agreed>();
  agreed->opened = std::move(start);
  const Opened& opened = *agreed->opened;
  const bool exports = opened.job.weights_export.has_value();
  opened.reports.Progress("loading");
  RETURN_IF_ERROR(AgreeOn("the job", jobspec::LinesOf(opened.job.spec), opened.parts.control));
  ASSIGN_OR_RETURN(agreed->ranks_of_node, RanksOfNode(*opened.parts.files));
  if (exports) RETURN_IF_ERROR(ExportOf(opened, nullptr).Prepare());
  RETURN_IF_ERROR(MakeModel(agreed.get()));
  if (exports) RETURN_IF_ERROR(ExportOf(opened, nullptr).PrepareConfig(*agreed->model));
  RETURN_IF_ERROR(OpenData(agreed.get()));
  RETURN_IF_ERROR(AgreeOnData(agreed.get()));
  return agreed;
}

}  // namespace muster::train
