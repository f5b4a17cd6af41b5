#include <cstdint>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/problem_list.h"
#include "common/jobspec/validate_generic.h"

namespace muster::jobspec {
namespace {

// Beyond these a number is a slip of the pen, and sums and products of it could overflow.
constexpr uint64_t kMaxWorldSize = 65536;
constexpr uint64_t kMaxDimension = 1 << 24;
constexpr uint64_t kMaxVocabulary = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMaxLayers = 100000;
constexpr uint64_t kMaxBatch = 1 << 24;
constexpr uint64_t kMaxSteps = std::numeric_limits<uint32_t>::max();

class Validator {
 public:
  explicit Validator(const v1::JobSpec& spec) : spec_(spec) {}

  v1::SpecProblems Run() {
    Name();
    Count("world_size", spec_.world_size(), 1, kMaxWorldSize);
    Model();
    Data();
    Optimizer();
    Schedule();
    Batch();
    Strategy();
    if (spec_.has_clip_grad_norm()) Above0("clip_grad_norm", spec_.clip_grad_norm());
    Stages();
    if (spec_.has_checkpoint()) {
      Required("checkpoint.directory", spec_.checkpoint().directory());
      if (spec_.checkpoint().has_keep()) Count("checkpoint.keep", spec_.checkpoint().keep(), 1, kMaxSteps);
    }
    if (spec_.has_export_()) Required("export.path", spec_.export_().path());
    ValidateGeneric(spec_, &problems_);
    return problems_.problems();
  }

 private:
  void Add(const std::string& path, const std::string& message) { problems_.Add(path, message); }

  // A whole number without presence: 0 is "not given".
  void Count(const std::string& path, uint64_t value, uint64_t low, uint64_t high) {
    if (value >= low && value <= high) return;
    const std::string found = value == 0 ? "is missing or 0" : absl::StrCat("found ", value);
    Add(path, absl::StrCat(found, "; allowed: ", low, " to ", high));
  }
  void Above0(const std::string& path, double value) {
    // Written so that NaN fails too.
    if (!(value > 0)) Add(path, absl::StrCat("found ", value, "; allowed: a number above 0"));
  }
  // A required number above 0 without presence.
  void Rate(const std::string& path, double value) {
    if (value == 0) {
      Add(path, "is missing or 0; allowed: a number above 0");
    } else {
      Above0(path, value);
    }
  }
  void AtLeast0(const std::string& path, double value) {
    if (!(value >= 0)) Add(path, absl::StrCat("found ", value, "; allowed: 0 or more"));
  }
  void Probability(const std::string& path, double value) {
    if (!(value >= 0 && value < 1)) {
      Add(path, absl::StrCat("found ", value, "; allowed: from 0 to below 1"));
    }
  }
  void Required(const std::string& path, const std::string& value) {
    if (value.empty()) Add(path, "is missing; allowed: a path");
  }

  void Name() {
    const std::string& name = spec_.name();
    constexpr char kAllowed[] =
        "allowed: 1 to 40 of a-z, 0-9 and '-', the first one no '-'";
    if (name.empty()) {
      Add("name", absl::StrCat("is missing; ", kAllowed));
    } else if (name.size() > 40) {
      Add("name", absl::StrCat("found ", name.size(), " characters; ", kAllowed));
    } else if (name[0] == '-' ||
               name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos) {
      Add("name", absl::StrCat("found '", name, "'; ", kAllowed));
    }
  }

  void Model() {
    if (!spec_.has_model()) {
      Add("model", "is missing; allowed is one of: gpt2, mlp");
    } else if (spec_.model().has_gpt2()) {
      Gpt2(spec_.model().gpt2());
    } else if (spec_.model().has_mlp()) {
      const v1::MlpSpec& mlp = spec_.model().mlp();
      Count("model.mlp.inputs", mlp.inputs(), 1, kMaxDimension);
      for (int i = 0; i < mlp.hidden_size(); ++i) {
        Count(ElementPath("model.mlp.hidden", i), mlp.hidden(i), 1, kMaxDimension);
      }
      Count("model.mlp.classes", mlp.classes(), 1, kMaxDimension);
    }
  }

  void Gpt2(const v1::Gpt2Spec& gpt2) {
    Count("model.gpt2.vocab_size", gpt2.vocab_size(), 1, kMaxVocabulary);
    Count("model.gpt2.context", gpt2.context(), 1, kMaxDimension);
    Count("model.gpt2.layers", gpt2.layers(), 1, kMaxLayers);
    Count("model.gpt2.heads", gpt2.heads(), 1, kMaxDimension);
    Count("model.gpt2.width", gpt2.width(), 1, kMaxDimension);
    if (gpt2.heads() > 0 && gpt2.width() % gpt2.heads() != 0) {
      Add("model.gpt2.heads", absl::StrCat("found ", gpt2.heads(), "; allowed: a divisor of width, ",
                                           gpt2.width()));
    }
    // Four times the largest width is still fine.
    if (gpt2.has_inner()) Count("model.gpt2.inner", gpt2.inner(), 1, 4 * kMaxDimension);
    if (gpt2.has_dropout()) Probability("model.gpt2.dropout", gpt2.dropout());
  }

  void Data() {
    if (spec_.data().has_train()) Dataset("data.train", spec_.data().train());
    if (spec_.data().has_validate()) Dataset("data.validate", spec_.data().validate());
  }

  void Dataset(const std::string& path, const v1::DataSet& data) {
    if (data.has_tokens()) {
      if (data.tokens().path().empty()) {
        Add(absl::StrCat(path, ".tokens.path"), "is missing; allowed: one or more paths");
      }
      if (spec_.model().has_mlp()) {
        Add(absl::StrCat(path, ".tokens"),
            "found tokens, but the model mlp reads rows of numbers; allowed: safetensors");
      }
    } else if (data.has_safetensors()) {
      Required(absl::StrCat(path, ".safetensors.path"), data.safetensors().path());
      if (spec_.model().has_gpt2()) {
        Add(absl::StrCat(path, ".safetensors"),
            "found rows of numbers, but the model gpt2 reads tokens; allowed: tokens");
      }
    }
  }

  void Optimizer() {
    if (spec_.optimizer().has_adamw()) {
      const v1::AdamwSpec& adamw = spec_.optimizer().adamw();
      Rate("optimizer.adamw.lr", adamw.lr());
      if (adamw.betas_size() != 0 && adamw.betas_size() != 2) {
        Add("optimizer.adamw.betas", absl::StrCat("found ", adamw.betas_size(),
                                                  "; allowed: 2 numbers, such as [0.9, 0.999]"));
      }
      for (int i = 0; i < adamw.betas_size(); ++i) {
        Probability(ElementPath("optimizer.adamw.betas", i), adamw.betas(i));
      }
      if (adamw.has_eps()) Above0("optimizer.adamw.eps", adamw.eps());
      AtLeast0("optimizer.adamw.weight_decay", adamw.weight_decay());
    } else if (spec_.optimizer().has_sgd()) {
      const v1::SgdSpec& sgd = spec_.optimizer().sgd();
      Rate("optimizer.sgd.lr", sgd.lr());
      Probability("optimizer.sgd.momentum", sgd.momentum());
      AtLeast0("optimizer.sgd.weight_decay", sgd.weight_decay());
    }
  }

  void Schedule() {
    if (!spec_.schedule().has_warmup_cosine()) return;
    const v1::WarmupCosineSchedule& cosine = spec_.schedule().warmup_cosine();
    const uint64_t fit_steps = TotalSteps(spec_);
    if (cosine.has_total_steps()) {
      Count("schedule.warmup_cosine.total_steps", cosine.total_steps(), 1, kMaxSteps);
      if (cosine.total_steps() > 0 && cosine.warmup_steps() > cosine.total_steps()) {
        Add("schedule.warmup_cosine.warmup_steps",
            absl::StrCat("found ", cosine.warmup_steps(), "; allowed: at most total_steps, ",
                         cosine.total_steps()));
      }
    } else if (fit_steps > 0 && cosine.warmup_steps() > fit_steps) {
      Add("schedule.warmup_cosine.warmup_steps",
          absl::StrCat("found ", cosine.warmup_steps(), "; allowed: at most the steps of all fit stages, ",
                       fit_steps, ", unless total_steps says more"));
    }
    if (!(cosine.min_ratio() >= 0 && cosine.min_ratio() <= 1)) {
      Add("schedule.warmup_cosine.min_ratio",
          absl::StrCat("found ", cosine.min_ratio(), "; allowed: 0 to 1"));
    }
  }

  void Batch() {
    Count("batch.per_rank", spec_.batch().per_rank(), 1, kMaxBatch);
    if (spec_.batch().has_accumulate()) Count("batch.accumulate", spec_.batch().accumulate(), 1, kMaxBatch);
  }

  void Strategy() {
    if (spec_.strategy().ddp().has_bucket_mb()) {
      Above0("strategy.ddp.bucket_mb", spec_.strategy().ddp().bucket_mb());
    }
  }

  void Stages() {
    if (spec_.stages().empty()) {
      Add("stages", "is missing or empty; allowed: one or more of fit, validate");
    }
    bool fits = false;
    for (int i = 0; i < spec_.stages_size(); ++i) {
      const std::string path = ElementPath("stages", i);
      const v1::StageSpec& stage = spec_.stages(i);
      if (stage.has_fit()) {
        fits = true;
        Count(absl::StrCat(path, ".fit.steps"), stage.fit().steps(), 1, kMaxSteps);
        if (stage.fit().validate_every() > 0 && !spec_.data().has_validate()) {
          Add("data.validate",
              absl::StrCat("is missing, but ", path, ".fit.validate_every needs it"));
        }
      } else if (stage.has_validate() && !spec_.data().has_validate()) {
        Add("data.validate", absl::StrCat("is missing, but ", path, ".validate needs it"));
      }
    }
    if (!fits) return;
    if (!spec_.data().has_train()) Add("data.train", "is missing, but the stage fit needs it");
    if (!spec_.has_optimizer()) {
      Add("optimizer", "is missing, but the stage fit needs it; allowed is one of: adamw, sgd");
    }
  }

  const v1::JobSpec& spec_;
  ProblemList problems_;
};

}  // namespace

v1::SpecProblems ValidateSpec(const v1::JobSpec& spec) { return Validator(spec).Run(); }

std::string FormatProblems(const v1::SpecProblems& problems, const std::string& file) {
  std::string text;
  for (const v1::SpecProblem& problem : problems.problems()) {
    if (!file.empty()) {
      absl::StrAppend(&text, file, ":");
      if (problem.line() > 0) absl::StrAppend(&text, problem.line(), ":");
      text += ' ';
    }
    if (!problem.path().empty()) absl::StrAppend(&text, problem.path(), ": ");
    absl::StrAppend(&text, problem.message(), "\n");
  }
  return text;
}

}  // namespace muster::jobspec
