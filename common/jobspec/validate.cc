#include "common/jobspec/validate.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/problem_list.h"
#include "common/jobspec/rules.h"
#include "common/jobspec/sizes.h"

namespace muster::jobspec {
namespace {

// The product of the dimensions of a row must fit into the type that counts them.
constexpr uint64_t kMaxRow = std::numeric_limits<int32_t>::max();

// The rules for several fields. The rules of single fields are beside the fields (rules.h).
class Validator {
 public:
  explicit Validator(const v1::JobSpec& spec) : spec_(spec) {}

  v1::SpecProblems Run() {
    CheckSizes(spec_, &problems_);
    if (!problems_.empty()) return problems_.problems();
    CheckRules(spec_, &problems_);
    Model();
    Tokenizer();
    Weights();
    ValidateData(spec_, &problems_);
    ValidateOptimizer(spec_, &problems_);
    ValidateSchedule(spec_, UnlimitedSteps(spec_).value_or(0), &problems_);
    ValidatePrecision(spec_, &problems_);
    Loss();
    Stages();
    ValidatePredict(spec_, &problems_);
    ValidateOutputs(spec_, &problems_);
    ValidatePasses(spec_, &problems_);
    Profile(UnlimitedSteps(spec_));
    UnevenInputs();
    Collectives();
    Start();
    Ema(UnlimitedSteps(spec_).value_or(0));
    return problems_.problems();
  }

  v1::SpecProblems Run(uint64_t total_steps) {
    ValidateSchedule(spec_, total_steps, &problems_);
    Profile(total_steps);
    Ema(total_steps);
    return problems_.problems();
  }

 private:
  void Add(const std::string& path, const std::string& message) { problems_.Add(path, message); }

  void Model() {
    const v1::ModelSpec& model = spec_.model();
    if (model.kind_case() == v1::ModelSpec::KIND_NOT_SET) return;
    if (model.context() > 0 && !model.has_exported() && !model.has_hf()) {
      Add("model.context", absl::StrCat("found ", model.context(), " with the model ",
                                        KindOf(model), "; allowed: only with hf and exported"));
    }
    if (model.vocab_size() > 0 && !model.has_hf()) {
      Add("model.vocab_size",
          absl::StrCat(
              "found with the model ", KindOf(model),
              "; allowed: only with hf (gpt2 and llama have it among their own settings)"));
    }
    if (model.weights_from().pad_vocabulary() && !model.has_gpt2() && !model.has_llama()) {
      Add("model.weights.pad_vocabulary", absl::StrCat("found with the model ", KindOf(model),
                                                       "; allowed: only with gpt2 and llama"));
    }
    if (spec_.export_().vocab_size() > 0 && !model.has_gpt2() && !model.has_llama() &&
        !model.has_hf()) {
      Add("export.vocab_size", absl::StrCat("found with the model ", KindOf(model),
                                            "; allowed: only with gpt2, llama and hf"));
    }
    switch (model.kind_case()) {
      case v1::ModelSpec::kGpt2:
        return Divides("model.gpt2.heads", model.gpt2().heads(), "width", model.gpt2().width());
      case v1::ModelSpec::kLlama:
        return Llama(model.llama());
      case v1::ModelSpec::kConvnet:
        return Convnet(model.convnet());
      case v1::ModelSpec::kTorchscript:
        return Torchscript(model.torchscript());
      case v1::ModelSpec::kMlp:
      case v1::ModelSpec::kExported:
      case v1::ModelSpec::kHf:
      case v1::ModelSpec::kPlugin:
      case v1::ModelSpec::KIND_NOT_SET:
        return;
    }
  }

  // Another check reports a vocabulary of 0 as missing.
  void Tokenizer() {
    const v1::ModelSpec& model = spec_.model();
    if (model.tokenizer() == v1::ModelSpec::TOKENIZER_UNSPECIFIED) return;
    if (!MayGenerate(model)) {
      return Add("model.tokenizer",
                 "is for samples, which this model cannot give; allowed: with gpt2, llama, hf or "
                 "exported");
    }
    if (!KnowsVocabulary(model)) return;
    const uint32_t tokens =
        model.has_gpt2() ? model.gpt2().vocab_size() : model.llama().vocab_size();
    if (model.tokenizer() != v1::ModelSpec::BYTES || tokens == 0 || tokens >= 256) return;
    Add("model.tokenizer", absl::StrCat("found bytes with a vocab_size of ", tokens,
                                        "; allowed: with 256 or more, so that each byte is a "
                                        "token"));
  }

  void Weights() {
    const v1::ModelSpec& model = spec_.model();
    const std::string path = "model.weights";
    if (model.has_hf() && (model.has_weights_from() || !model.weights().empty())) {
      Add(path, "found with hf, whose folder has the weights; allowed: one of them");
    }
    if (!model.has_weights_from()) return;
    if (!model.weights().empty()) Add(path, "found a path and a mapping; allowed: one of them");
    const auto& rename = model.weights_from().rename();
    // Checks in the order of the names.
    for (const auto& [from, to] :
         std::map<std::string, std::string>(rename.begin(), rename.end())) {
      const auto stars = [](const std::string& name) {
        return std::count(name.begin(), name.end(), '*');
      };
      const std::string at = ChildPath(path + ".rename", from);
      if (from.empty() || to.empty()) {
        Add(at, absl::StrCat("found '", from, "': '", to, "'; allowed: two names"));
      } else if (stars(from) != stars(to) || stars(from) > 1) {
        Add(at, absl::StrCat("found '", from, "': '", to,
                             "'; allowed: no * in both names, or one * in both"));
      }
    }
  }

  // Another check reports a value of 0 as missing.
  void Divides(const std::string& path, uint64_t number, const std::string& of, uint64_t whole) {
    if (number == 0 || whole % number == 0) return;
    Add(path, absl::StrCat("found ", number, "; allowed: a divisor of ", of, ", ", whole));
  }

  void Torchscript(const v1::TorchscriptSpec& script) {
    const std::string path = "model.torchscript";
    const bool rows = !script.inputs().empty() || script.classes() > 0;
    const bool tokens = script.vocab_size() > 0 || script.context() > 0;
    if (rows == tokens) {
      return Add(path, absl::StrCat("found ", rows ? "both" : "neither of",
                                    " inputs and classes, and vocab_size and context; allowed: one "
                                    "of the two pairs"));
    }
    if (tokens) {
      Needs(path + ".vocab_size", script.vocab_size());
      return Needs(path + ".context", script.context());
    }
    Needs(path + ".classes", script.classes());
    if (script.inputs().empty()) {
      Add(path + ".inputs", "is missing; allowed: the shape of a row, one number or more");
    }
    uint64_t numbers = 1;
    for (const uint32_t one : script.inputs())
      numbers = numbers > kMaxRow ? numbers : numbers * one;
    if (numbers > kMaxRow) {
      Add(path + ".inputs", absl::StrCat("found a row of more than ", kMaxRow, " numbers"));
    }
  }
  void Needs(const std::string& path, uint64_t value) {
    if (value == 0) Add(path, "is missing or 0; allowed: 1 or more");
  }

  void Collectives() {
    if (spec_.collectives().order() != v1::CollectivesSpec::FAST) return;
    if (spec_.device() == v1::JobSpec::CUDA) return;
    Add("collectives.order",
        "found fast; allowed: rank, because on the CPU gradients are always added in the order of "
        "the ranks");
  }

  void Llama(const v1::LlamaSpec& llama) {
    Divides("model.llama.heads", llama.heads(), "width", llama.width());
    if (llama.heads() > 0 && llama.width() / llama.heads() % 2 != 0) {
      Add("model.llama.heads",
          absl::StrCat("found ", llama.heads(), ", a head of ", llama.width() / llama.heads(),
                       "; allowed: width / heads even"));
    }
    Divides("model.llama.kv_heads", llama.kv_heads(), "heads", llama.heads());
  }

  void Convnet(const v1::ConvnetSpec& convnet) {
    if (!convnet.widths().empty() && convnet.blocks_size() != convnet.widths_size()) {
      Add("model.convnet.blocks",
          absl::StrCat("found ", convnet.blocks_size(), " numbers; allowed: as many as widths, ",
                       convnet.widths_size()));
    }
    if (convnet.inputs_size() == 3) ConvnetStages(convnet);
  }

  // The size of the image is halved, rounding up, between two stages.
  void ConvnetStages(const v1::ConvnetSpec& convnet) {
    uint64_t height = convnet.inputs(1);
    uint64_t width = convnet.inputs(2);
    for (int stage = 1; stage < convnet.widths_size(); ++stage) {
      if (height <= 1 && width <= 1) {
        Add("model.convnet.widths",
            absl::StrCat("found ", convnet.widths_size(), " stages; allowed: at most ", stage,
                         ", after which an image of ", convnet.inputs(1), " x ", convnet.inputs(2),
                         " pixels is down to one"));
        return;
      }
      height = (height + 1) / 2;
      width = (width + 1) / 2;
    }
    const bool one_pixel = height == 1 && width == 1;
    if (one_pixel && Trains(spec_) && spec_.batch().per_rank() == 1) {
      Add("batch.per_rank",
          "found 1; allowed: 2 or more, because BatchNorm in the last stage of model.convnet, "
          "where an "
          "image is down to one pixel, needs more than one number per channel");
    }
  }

  void UnevenInputs() {
    if (spec_.uneven_inputs().has_stop_at_first() && spec_.data().train().has_documents()) {
      Add("uneven_inputs.stop_at_first",
          "found together with data.train.documents, whose micro-batches have different numbers of "
          "targets; allowed: join");
    }
    const v1::BatchSpec::Last last = spec_.batch().last();
    if (!spec_.has_uneven_inputs() || spec_.data().train().per_rank().empty()) return;
    if (last != v1::BatchSpec::DROP && last != v1::BatchSpec::PAD) return;
    // Division by samples has an effect on even inputs, too.
    if (spec_.uneven_inputs().join().divide_by() == v1::JoinSpec::SAMPLES) return;
    Add("batch.last",
        absl::StrCat("found ", last == v1::BatchSpec::DROP ? "drop" : "pad",
                     " together with data.train.per_rank and uneven_inputs: the shortest file "
                     "would end each epoch "
                     "for all, and no rank would ever be without input; allowed: uneven"));
  }

  // `steps`: those of all fit stages, if known.
  void Profile(std::optional<uint64_t> steps) {
    if (!spec_.has_profile()) return;
    if (steps == 0) Add("profile", "has no steps to record; allowed: with a stage fit");
    if (steps.value_or(0) == 0) return;
    for (int i = 0; i < spec_.profile().steps_size(); ++i) {
      const uint64_t step = spec_.profile().steps(i);
      if (step <= *steps) continue;
      Add(ElementPath("profile.steps", i),
          absl::StrCat("found ", step, "; allowed: 1 to ", *steps));
    }
  }

  // The rules of `ema`, and of an export of its averages. `steps`: those of all fit stages; 0: not
  // known.
  void Ema(uint64_t steps) {
    if (spec_.has_ema() && !Trains(spec_)) {
      Add("ema",
          "averages the weights of training, but there is no stage fit; allowed: with a stage fit");
    }
    if (spec_.export_().from() == v1::ExportSpec::EMA && !spec_.has_ema()) {
      Add("export.from",
          "found ema, but the job keeps no averages; allowed: last, or ema together with the key "
          "ema");
    }
    // The averages of another job may be there at the start.
    const bool from_other = spec_.has_start() && spec_.start().what() != v1::StartSpec::WEIGHTS;
    if (steps == 0 || from_other || spec_.ema().every() <= steps) return;
    Add("ema.every", absl::StrCat("found ", spec_.ema().every(),
                                  ", but no average would ever be made in the steps of all fit "
                                  "stages; allowed: 1 to ",
                                  steps));
  }

  // Refuses files for values that the checkpoint gives already.
  void Start() {
    if (!spec_.has_start()) return;
    const auto both = [&](const std::string& path, const char* what) {
      Add(path, absl::StrCat("found a file, but start.checkpoint gives ", what,
                             ", too; allowed: one of them"));
    };
    const bool weights = !spec_.model().weights().empty() || spec_.model().has_weights_from();
    if (weights) both("model.weights", "the parameters");
    const bool optimizer = spec_.start().what() != v1::StartSpec::WEIGHTS;
    if (optimizer && !spec_.optimizer().state().empty()) {
      both("optimizer.state", "the optimizer's state");
    }
  }

  void Loss() {
    if (!spec_.loss().has_mse()) return;
    const v1::ModelSpec& model = spec_.model();
    const bool tokens = model.has_gpt2() || model.has_llama() || model.has_hf();
    if (tokens || model.torchscript().vocab_size() > 0) {
      Add("loss", "found mse, but the model gives logits of tokens; allowed: cross_entropy");
    }
  }

  // Requires the data set of a stage that evaluates.
  void NeedsData(const char* data, bool has_data, const std::string& stage) {
    if (!has_data) Add(data, absl::StrCat("is missing, but ", stage, " needs it"));
  }

  void Stages() {
    const v1::DataSpec& data = spec_.data();
    for (int i = 0; i < spec_.stages_size(); ++i) {
      const std::string path = ElementPath("stages", i);
      const v1::StageSpec& stage = spec_.stages(i);
      if (stage.fit().validate_every() > 0) {
        NeedsData("data.validate", data.has_validate(), path + ".fit.validate_every");
      }
      if (stage.has_validate()) {
        NeedsData("data.validate", data.has_validate(), path + ".validate");
      }
      if (stage.has_test()) NeedsData("data.test", data.has_test(), path + ".test");
      if (!spec_.has_batch() && !stage.predict().has_generate()) {
        return Add("batch.per_rank", absl::StrCat("is missing, but ", path, " needs it"));
      }
    }
    if (!Trains(spec_)) return;
    if (!spec_.data().has_train()) Add("data.train", "is missing, but the stage fit needs it");
    // A job that continues from a checkpoint may have the optimizer from the checkpoint.
    if (!spec_.has_optimizer() && spec_.start().what() != v1::StartSpec::EVERYTHING) {
      const auto* kind = v1::OptimizerSpec::descriptor()->FindOneofByName("kind");
      Add("optimizer", absl::StrCat("is missing, but the stage fit needs it; allowed is one of: ",
                                    absl::StrJoin(Alternatives(*kind), ", ")));
    }
  }

  const v1::JobSpec& spec_;
  ProblemList problems_;
};

}  // namespace

v1::SpecProblems ValidateSpec(const v1::JobSpec& spec) { return Validator(spec).Run(); }

v1::SpecProblems ValidateSteps(const v1::JobSpec& spec, uint64_t total_steps) {
  return Validator(spec).Run(total_steps);
}

std::string FormatProblems(const v1::SpecProblems& problems, const std::string& file) {
  std::string text;
  for (const v1::SpecProblem& problem : problems.problems()) {
    if (!problem.source().empty()) {
      absl::StrAppend(&text, problem.source(), ": ");
    } else if (!file.empty()) {
      absl::StrAppend(&text, file, ":");
      if (problem.line() > 0) absl::StrAppend(&text, problem.line(), ":");
      text += ' ';
    }
    // The source may have the path at its end already.
    const bool named = absl::EndsWith(problem.source(), absl::StrCat(" ", problem.path()));
    if (!problem.path().empty() && !named) absl::StrAppend(&text, problem.path(), ": ");
    absl::StrAppend(&text, problem.message(), "\n");
  }
  return text;
}

}  // namespace muster::jobspec
