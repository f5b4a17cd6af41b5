#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/prompts.h"
#include "common/jobspec/validate.h"

namespace muster::jobspec {
namespace {

class PredictValidator {
 public:
  PredictValidator(const v1::JobSpec& spec, ProblemList* problems)
      : spec_(spec), problems_(problems) {}

  void Stage(const std::string& path, const v1::PredictStage& stage) {
    Output(path + ".output", stage);
    if (stage.has_generate()) {
      if (stage.what() != v1::PredictStage::WHAT_UNSPECIFIED) {
        Add(path + ".what",
            "found together with generate, whose output is tokens; allowed: one of the two");
      }
      return Generate(path + ".generate", stage.generate());
    }
    if (!spec_.data().has_predict()) {
      Add("data.predict", absl::StrCat("is missing, but ", path, " needs it"));
    }
    if (stage.what() == v1::PredictStage::CLASSES && spec_.loss().has_mse()) {
      Add(path + ".what",
          "found classes, but with the loss mse the model gives numbers; allowed: logits");
    }
  }

 private:
  void Add(const std::string& path, const std::string& message) { problems_->Add(path, message); }

  void Output(const std::string& path, const v1::PredictStage& stage) {
    const std::string& output = stage.output();
    if (output.empty()) return;  // another check reports it as missing
    if (stage.has_generate()) {
      if (!absl::EndsWith(output, ".json")) {
        Add(path,
            absl::StrCat("found ", output, "; allowed with generate: a name that ends in .json"));
      }
    } else if (!absl::EndsWith(output, ".safetensors") && !absl::EndsWith(output, ".npy")) {
      Add(path,
          absl::StrCat("found ", output, "; allowed: a name that ends in .safetensors or .npy"));
    }
  }

  void Generate(const std::string& path, const v1::GenerateSpec& generate) {
    const v1::ModelSpec& model = spec_.model();
    if (model.kind_case() != v1::ModelSpec::KIND_NOT_SET && !MayGenerate(model)) {
      Add(path, absl::StrCat("found with the model ", KindOf(model),
                             "; allowed: with gpt2, llama, hf and exported"));
    }
    if (generate.has_top_k() && !generate.has_temperature()) {
      Add(path + ".top_k", absl::StrCat("found ", generate.top_k(),
                                        " without temperature, with which alone tokens are drawn; "
                                        "allowed: both, or neither"));
    }
    const std::string prompts = path + ".prompts";
    const bool lists = !generate.prompts().empty();
    if (lists == !generate.prompts_from().empty()) {
      return Add(prompts, absl::StrCat(lists ? "found lists and a path" : "is missing",
                                       "; allowed: lists of token ids, or the path of a JSON file "
                                       "with such lists"));
    }
    if (!lists) return;
    for (const v1::PromptSpec& prompt : generate.prompts()) {
      if (prompt.tokens().empty()) return;  // another check reports it
    }
    const TokenLists given = PromptsOf(generate);
    const absl::Status status = CheckPrompts(Prompts(given.begin(), given.end()), model, generate);
    if (!status.ok()) Add(prompts, std::string(status.message()));
  }

  const v1::JobSpec& spec_;
  ProblemList* const problems_;
};

}  // namespace

void ValidatePredict(const v1::JobSpec& spec, ProblemList* problems) {
  PredictValidator validator(spec, problems);
  for (int i = 0; i < spec.stages_size(); ++i) {
    if (!spec.stages(i).has_predict()) continue;
    validator.Stage(ElementPath("stages", i) + ".predict", spec.stages(i).predict());
  }
}

}  // namespace muster::jobspec
