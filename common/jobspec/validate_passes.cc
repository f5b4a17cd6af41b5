#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/validate.h"

namespace muster::jobspec {
namespace {

using Metric = v1::ValidationMetric::Metric;
using Mode = v1::ValidationMetric::Mode;

// The number of classes above which classifiers give top_k_accuracy.
constexpr uint32_t kTopK = 5;

bool HasTokens(const v1::ModelSpec& model) {
  return model.has_gpt2() || model.has_llama() || model.torchscript().vocab_size() > 0;
}

// The classes of a classifier of rows; absent: the number is not known, or there are none.
std::optional<uint32_t> ClassesOf(const v1::ModelSpec& model) {
  if (model.has_mlp()) return model.mlp().classes();
  if (model.has_convnet()) return model.convnet().classes();
  if (model.torchscript().classes() > 0) return model.torchscript().classes();
  return std::nullopt;
}

// The length in steps or epochs, as in the file. Another check reports 0 as missing.
uint32_t LengthOf(const v1::FitStage& fit) { return fit.has_epochs() ? fit.epochs() : fit.steps(); }

// Returns whether a stage that counts in steps is cut short before its first pass.
bool EndsBeforeAPass(const v1::FitStage& fit) {
  return !fit.has_epochs() && fit.limit_steps() > 0 && fit.limit_steps() < fit.validate_every();
}

// The mode, also in a spec without its defaults.
Mode ModeOf(Metric metric, Mode mode) {
  if (mode != v1::ValidationMetric::MODE_UNSPECIFIED) return mode;
  const bool share =
      metric == v1::ValidationMetric::ACCURACY || metric == v1::ValidationMetric::TOP_K_ACCURACY;
  return share ? v1::ValidationMetric::MAX : v1::ValidationMetric::MIN;
}
Metric MetricOf(Metric metric) {
  return metric == v1::ValidationMetric::METRIC_UNSPECIFIED ? v1::ValidationMetric::LOSS : metric;
}

class PassesValidator {
 public:
  PassesValidator(const v1::JobSpec& spec, ProblemList* problems)
      : spec_(spec), problems_(problems) {}

  void Run() {
    for (int i = 0; i < spec_.stages_size(); ++i) {
      Fit(ElementPath("stages", i) + ".fit", spec_.stages(i).fit());
    }
    if (spec_.export_().from() == v1::ExportSpec::BEST) Export();
  }

 private:
  void Fit(const std::string& path, const v1::FitStage& fit) {
    if (fit.has_early_stopping()) {
      NeedsPasses(path, "early_stopping", fit);
      Gives(path + ".early_stopping.metric", fit.early_stopping().metric());
    }
    if (fit.has_sample()) Sample(path, fit);
    if (!fit.has_keep_best()) return;
    NeedsPasses(path, "keep_best", fit);
    Gives(path + ".keep_best.metric", fit.keep_best().metric());
    if (!spec_.has_checkpoint()) {
      problems_->Add("checkpoint", absl::StrCat("is missing, but ", path, ".keep_best needs it"));
    }
    Same(path + ".keep_best", fit.keep_best());
  }

  void Sample(const std::string& path, const v1::FitStage& fit) {
    NeedsPasses(path, "sample", fit);
    if (fit.sample().has_document() && !spec_.data().validate().has_documents()) {
      problems_->Add(path + ".sample.document",
                     "is found, but data.validate has no documents; allowed: text");
    }
    if (fit.sample().has_text() && fit.sample().text().empty()) {
      problems_->Add(path + ".sample.text", "is empty; allowed: a text");
    } else if (fit.sample().has_text() && !spec_.model().has_hf() &&
               spec_.model().tokenizer() != v1::ModelSpec::BYTES) {
      problems_->Add(path + ".sample.text",
                     "is found, but the model has no tokenizer; allowed with the model hf, or with "
                     "model.tokenizer: bytes");
    }
    if (!MayGenerate(spec_.model()) && spec_.model().kind_case() != v1::ModelSpec::KIND_NOT_SET) {
      problems_->Add(path + ".sample", absl::StrCat("is found, but the model ",
                                                    KindOf(spec_.model()), " cannot generate"));
    }
  }

  void NeedsPasses(const std::string& path, const char* rule, const v1::FitStage& fit) {
    if (fit.validate_every() == 0) {
      return problems_->Add(
          path + ".validate_every",
          absl::StrCat("is missing or 0, but ", rule, " needs it; allowed: 1 or more"));
    }
    // A stage that is cut short for a trial (limit_steps) may be too short.
    const uint32_t length = LengthOf(fit);
    if (length == 0 || fit.validate_every() <= length) return;
    problems_->Add(
        path + ".validate_every",
        absl::StrCat("found ", fit.validate_every(), ", but ", rule,
                     " needs a validation pass, and the stage has ", length,
                     fit.has_epochs() ? " epochs" : " steps", "; allowed: 1 to ", length));
  }

  // Refuses numbers of different metrics, which cannot be compared.
  void Same(const std::string& path, const v1::KeepBestSpec& keep_best) {
    if (first_ == nullptr) {
      first_ = &keep_best;
      first_path_ = path;
      return;
    }
    const bool same =
        MetricOf(keep_best.metric()) == MetricOf(first_->metric()) &&
        ModeOf(keep_best.metric(), keep_best.mode()) == ModeOf(first_->metric(), first_->mode());
    if (same) return;
    problems_->Add(path, absl::StrCat("differs from ", first_path_,
                                      "; allowed: the same metric and mode in all stages"));
  }

  void Gives(const std::string& path, Metric metric) {
    const std::string why = WhyNot(metric);
    if (why.empty()) return;
    const std::string name = absl::AsciiStrToLower(v1::ValidationMetric::Metric_Name(metric));
    problems_->Add(path, absl::StrCat("found ", name, ", which ", why));
  }

  // Why validation does not give the metric. Empty: validation gives it, or this is not known here.
  std::string WhyNot(Metric metric) const {
    const v1::ModelSpec& model = spec_.model();
    const bool shares =
        metric == v1::ValidationMetric::ACCURACY || metric == v1::ValidationMetric::TOP_K_ACCURACY;
    if (shares && spec_.loss().has_mse()) {
      return "the loss mse does not give; allowed: loss";
    }
    if (metric == v1::ValidationMetric::PERPLEXITY && ClassesOf(model).has_value()) {
      return "only models of tokens give; allowed: loss, accuracy, top_k_accuracy";
    }
    if (metric != v1::ValidationMetric::TOP_K_ACCURACY) return "";
    constexpr char kNeedsClasses[] = "only classifiers with more than 5 classes give; allowed: ";
    if (HasTokens(model)) return absl::StrCat(kNeedsClasses, "loss, accuracy, perplexity");
    const bool few = ClassesOf(model).has_value() && *ClassesOf(model) <= kTopK;
    return few ? absl::StrCat(kNeedsClasses, "loss, accuracy") : "";
  }

  void Export() {
    if (first_ == nullptr) {
      problems_->Add("export.from", "found best, but no stage fit has keep_best; allowed: last");
    } else if (std::all_of(spec_.stages().begin(), spec_.stages().end(), [](const auto& stage) {
                 return !stage.fit().has_keep_best() || EndsBeforeAPass(stage.fit());
               })) {
      problems_->Add("export.from",
                     "found best, but each stage fit with keep_best ends before its first "
                     "validation pass (limit_steps), so that no checkpoint would be the best one; "
                     "allowed: last, or limit_steps of validate_every or more");
    } else if (spec_.export_().every_steps() > 0) {
      problems_->Add(
          "export.every_steps",
          absl::StrCat("found ", spec_.export_().every_steps(),
                       ", but with from: best the weights are exported only when the job "
                       "succeeds; allowed: to leave it out"));
    }
  }

  const v1::JobSpec& spec_;
  ProblemList* problems_;
  const v1::KeepBestSpec* first_ = nullptr;
  std::string first_path_;
};

}  // namespace

void ValidatePasses(const v1::JobSpec& spec, ProblemList* problems) {
  PassesValidator(spec, problems).Run();
}

}  // namespace muster::jobspec
