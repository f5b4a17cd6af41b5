#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/jobspec/duration.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/problem_list.h"
#include "common/jobspec/validate_data.h"
#include "common/jobspec/validate_generic.h"
#include "common/jobspec/validate_optimizer.h"

namespace muster::jobspec {
namespace {

// Beyond these a number is a slip of the pen, and sums and products of it could overflow.
constexpr uint64_t kMaxWorldSize = 65536;
constexpr uint64_t kMaxDimension = 1 << 24;
constexpr uint64_t kMaxVocabulary = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMaxRow = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMaxLayers = 100000;
// Channels, and pixels of a side: a product of three fits 64 bits.
constexpr uint64_t kMaxImageSize = 1 << 16;
constexpr uint64_t kMaxBatch = 1 << 24;
constexpr uint64_t kMaxSteps = std::numeric_limits<uint32_t>::max();

class Validator {
 public:
  explicit Validator(const v1::JobSpec& spec) : spec_(spec) {}

  v1::SpecProblems Run() {
    Name();
    Count("world_size", spec_.world_size(), 1, kMaxWorldSize);
    Model();
    ValidateData(spec_, &problems_);
    ValidateOptimizer(spec_, &problems_);
    ValidateSchedule(spec_, &problems_);
    Batch();
    Strategy();
    ValidatePrecision(spec_, &problems_);
    if (spec_.has_clip_grad_norm()) Above0("clip_grad_norm", spec_.clip_grad_norm());
    Loss();
    Stages();
    if (spec_.has_checkpoint()) {
      Required("checkpoint.directory", spec_.checkpoint().directory());
      if (spec_.checkpoint().has_keep())
        Count("checkpoint.keep", spec_.checkpoint().keep(), 1, kMaxSteps);
    }
    if (spec_.has_export_()) Required("export.path", spec_.export_().path());
    if (spec_.has_profile()) Profile();
    UnevenInputs();
    Trainable();
    Watchdog();
    TimeLimit();
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
    constexpr char kAllowed[] = "allowed: 1 to 40 of a-z, 0-9 and '-', the first one no '-'";
    if (name.empty()) {
      Add("name", absl::StrCat("is missing; ", kAllowed));
    } else if (name.size() > 40) {
      Add("name", absl::StrCat("found ", name.size(), " characters; ", kAllowed));
    } else if (name[0] == '-' || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") !=
                                     std::string::npos) {
      Add("name", absl::StrCat("found '", name, "'; ", kAllowed));
    }
  }

  void Model() {
    if (!spec_.has_model()) {
      const auto* kind = v1::ModelSpec::descriptor()->FindOneofByName("kind");
      Add("model", absl::StrCat("is missing; allowed is one of: ",
                                absl::StrJoin(Alternatives(*kind), ", ")));
    } else if (spec_.model().has_gpt2()) {
      Gpt2(spec_.model().gpt2());
    } else if (spec_.model().has_llama()) {
      Llama(spec_.model().llama());
    } else if (spec_.model().has_mlp()) {
      const v1::MlpSpec& mlp = spec_.model().mlp();
      Count("model.mlp.inputs", mlp.inputs(), 1, kMaxDimension);
      for (int i = 0; i < mlp.hidden_size(); ++i) {
        Count(ElementPath("model.mlp.hidden", i), mlp.hidden(i), 1, kMaxDimension);
      }
      Count("model.mlp.classes", mlp.classes(), 1, kMaxDimension);
    } else if (spec_.model().has_convnet()) {
      Convnet(spec_.model().convnet());
    } else if (spec_.model().has_torchscript()) {
      Torchscript(spec_.model().torchscript());
    } else if (spec_.model().has_plugin()) {
      Required("model.plugin.path", spec_.model().plugin().path());
      if (spec_.model().plugin().name().empty()) {
        Add("model.plugin.name", "is missing; allowed: the name of one of the plug-in's models");
      }
    }
  }

  void Torchscript(const v1::TorchscriptSpec& script) {
    Required("model.torchscript.path", script.path());
    const bool rows = !script.inputs().empty() || script.classes() > 0;
    const bool tokens = script.vocab_size() > 0 || script.context() > 0;
    if (rows == tokens) {
      Add("model.torchscript",
          absl::StrCat(
              "found ", rows ? "both" : "neither of",
              " inputs and classes, and vocab_size and context; allowed: one of the two pairs"));
    } else if (tokens) {
      Count("model.torchscript.vocab_size", script.vocab_size(), 1, kMaxVocabulary);
      Count("model.torchscript.context", script.context(), 1, kMaxDimension);
    } else {
      if (script.inputs().empty()) {
        Add("model.torchscript.inputs",
            "is missing; allowed: the shape of a row, one number or more");
      }
      uint64_t numbers = 1;
      for (int i = 0; i < script.inputs_size(); ++i) {
        Count(ElementPath("model.torchscript.inputs", i), script.inputs(i), 1, kMaxDimension);
        numbers = numbers > kMaxRow ? numbers : numbers * script.inputs(i);
      }
      if (numbers > kMaxRow) {
        Add("model.torchscript.inputs",
            absl::StrCat("found a row of more than ", kMaxRow, " numbers"));
      }
      Count("model.torchscript.classes", script.classes(), 1, kMaxDimension);
    }
  }

  void Gpt2(const v1::Gpt2Spec& gpt2) {
    Count("model.gpt2.vocab_size", gpt2.vocab_size(), 1, kMaxVocabulary);
    Count("model.gpt2.context", gpt2.context(), 1, kMaxDimension);
    Count("model.gpt2.layers", gpt2.layers(), 1, kMaxLayers);
    Count("model.gpt2.heads", gpt2.heads(), 1, kMaxDimension);
    Count("model.gpt2.width", gpt2.width(), 1, kMaxDimension);
    if (gpt2.heads() > 0 && gpt2.width() % gpt2.heads() != 0) {
      Add("model.gpt2.heads",
          absl::StrCat("found ", gpt2.heads(), "; allowed: a divisor of width, ", gpt2.width()));
    }
    // Four times the largest width is still fine.
    if (gpt2.has_inner()) Count("model.gpt2.inner", gpt2.inner(), 1, 4 * kMaxDimension);
    if (gpt2.has_dropout()) Probability("model.gpt2.dropout", gpt2.dropout());
  }

  void Llama(const v1::LlamaSpec& llama) {
    Count("model.llama.vocab_size", llama.vocab_size(), 1, kMaxVocabulary);
    Count("model.llama.context", llama.context(), 1, kMaxDimension);
    Count("model.llama.layers", llama.layers(), 1, kMaxLayers);
    Count("model.llama.heads", llama.heads(), 1, kMaxDimension);
    Count("model.llama.width", llama.width(), 1, kMaxDimension);
    if (llama.heads() > 0 && llama.width() % llama.heads() != 0) {
      Add("model.llama.heads",
          absl::StrCat("found ", llama.heads(), "; allowed: a divisor of width, ", llama.width()));
    } else if (llama.heads() > 0 && llama.width() / llama.heads() % 2 != 0) {
      Add("model.llama.heads",
          absl::StrCat("found ", llama.heads(), ", a head of ", llama.width() / llama.heads(),
                       "; allowed: width / heads even"));
    }
    if (llama.has_kv_heads()) {
      Count("model.llama.kv_heads", llama.kv_heads(), 1, kMaxDimension);
      if (llama.kv_heads() > 0 && llama.heads() % llama.kv_heads() != 0) {
        Add("model.llama.kv_heads", absl::StrCat("found ", llama.kv_heads(),
                                                 "; allowed: a divisor of heads, ", llama.heads()));
      }
    }
    if (llama.has_inner()) Count("model.llama.inner", llama.inner(), 1, 4 * kMaxDimension);
    if (llama.has_rope_theta()) Above0("model.llama.rope_theta", llama.rope_theta());
    if (llama.has_norm_eps()) Above0("model.llama.norm_eps", llama.norm_eps());
  }

  void Convnet(const v1::ConvnetSpec& convnet) {
    const auto counts = [this](const std::string& path, const auto& numbers, uint64_t high) {
      for (int i = 0; i < numbers.size(); ++i) Count(ElementPath(path, i), numbers[i], 1, high);
    };
    counts("model.convnet.inputs", convnet.inputs(), kMaxImageSize);
    counts("model.convnet.widths", convnet.widths(), kMaxImageSize);
    counts("model.convnet.blocks", convnet.blocks(), kMaxLayers);
    Count("model.convnet.classes", convnet.classes(), 1, kMaxDimension);
    if (convnet.inputs_size() != 3) {
      Add("model.convnet.inputs", absl::StrCat("found ", convnet.inputs_size(),
                                               " numbers; allowed: 3, channels, height and width"));
    }
    if (convnet.widths().empty()) {
      Add("model.convnet.widths", "is missing or empty; allowed: one number or more");
    } else if (convnet.blocks_size() != convnet.widths_size()) {
      Add("model.convnet.blocks",
          absl::StrCat("found ", convnet.blocks_size(), " numbers; allowed: as many as widths, ",
                       convnet.widths_size()));
    }
    if (convnet.inputs_size() == 3) ConvnetStages(convnet);
  }

  // The image is halved, rounding up, between two stages.
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
    if (one_pixel && TotalSteps(spec_) > 0 && spec_.batch().per_rank() == 1) {
      Add("batch.per_rank",
          "found 1; allowed: 2 or more, because BatchNorm in the last stage of model.convnet, "
          "where an "
          "image is down to one pixel, needs more than one number per channel");
    }
  }

  void Batch() {
    Count("batch.per_rank", spec_.batch().per_rank(), 1, kMaxBatch);
    if (spec_.batch().has_accumulate())
      Count("batch.accumulate", spec_.batch().accumulate(), 1, kMaxBatch);
  }

  void UnevenInputs() {
    const v1::BatchSpec::Last last = spec_.batch().last();
    if (!spec_.has_uneven_inputs() || spec_.data().train().per_rank().empty()) return;
    if (last != v1::BatchSpec::DROP && last != v1::BatchSpec::PAD) return;
    // That has an effect on even inputs too.
    if (spec_.uneven_inputs().join().divide_by() == v1::JoinSpec::SAMPLES) return;
    Add("batch.last",
        absl::StrCat("found ", last == v1::BatchSpec::DROP ? "drop" : "pad",
                     " together with data.train.per_rank and uneven_inputs: the shortest file "
                     "would end each epoch "
                     "for all, and no rank would ever be without input; allowed: uneven"));
  }

  void Trainable() {
    for (int i = 0; i < spec_.trainable().rules_size(); ++i) {
      const v1::TrainableRule& rule = spec_.trainable().rules(i);
      const char* action = rule.has_freeze() ? ".freeze" : ".unfreeze";
      if (rule.action_case() == v1::TrainableRule::ACTION_NOT_SET) continue;  // see ValidateGeneric
      if (!(rule.has_freeze() ? rule.freeze() : rule.unfreeze()).empty()) continue;
      Add(absl::StrCat("trainable.rules[", i, "]", action),
          "is empty; allowed: a pattern of parameters' names");
    }
  }

  void Duration(const std::string& path, const std::string& text) {
    if (!DurationOf(text).has_value()) Add(path, absl::StrCat("found '", text, "'; ", kAllowedDurations));
  }

  void Watchdog() {
    const v1::WatchdogSpec& watchdog = spec_.watchdog();
    if (watchdog.has_no_progress()) Duration("watchdog.no_progress", watchdog.no_progress());
    if (watchdog.has_startup()) Duration("watchdog.startup", watchdog.startup());
  }

  void TimeLimit() {
    if (spec_.has_time_limit()) Duration("time_limit", spec_.time_limit());
  }

  void Profile() {
    const v1::ProfileSpec& profile = spec_.profile();
    if (TotalSteps(spec_) == 0) Add("profile", "has no steps to record; allowed: with a stage fit");
    Required("profile.directory", profile.directory());
    if (profile.steps().empty())
      Add("profile.steps", "is missing or empty; allowed: one or more steps");
    for (int i = 0; i < profile.steps_size(); ++i) {
      if (TotalSteps(spec_) > 0) {
        Count(absl::StrCat("profile.steps[", i, "]"), profile.steps(i), 1, TotalSteps(spec_));
      }
    }
  }

  template <typename Strings>
  void Units(const std::string& setting, const Strings& units) {
    for (int i = 0; i < units.size(); ++i) {
      const std::string path = absl::StrCat(setting, "[", i, "]");
      if (units[i].empty()) Add(path, "is empty; allowed: block, or a pattern of units' names");
      if (units[i] == "block" && units.size() > 1) {
        Add(path, "found block beside patterns; allowed: block alone, or patterns");
      }
    }
  }

  void Strategy() {
    if (spec_.strategy().ddp().has_bucket_mb()) {
      Above0("strategy.ddp.bucket_mb", spec_.strategy().ddp().bucket_mb());
    }
    if (spec_.strategy().sharded_ddp().has_bucket_mb()) {
      Above0("strategy.sharded_ddp.bucket_mb", spec_.strategy().sharded_ddp().bucket_mb());
    }
    Units("strategy.fsdp.unit", spec_.strategy().fsdp().unit());
    Units("activation_checkpointing.unit", spec_.activation_checkpointing().unit());
  }

  void Loss() {
    if (spec_.loss().cross_entropy().has_label_smoothing()) {
      Probability("loss.cross_entropy.label_smoothing",
                  spec_.loss().cross_entropy().label_smoothing());
    }
    if (!spec_.loss().has_mse()) return;
    const v1::ModelSpec& model = spec_.model();
    if (model.has_gpt2() || model.has_llama() || model.torchscript().vocab_size() > 0) {
      Add("loss", "found mse, but the model gives logits of tokens; allowed: cross_entropy");
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
    if (!problem.source().empty()) {
      absl::StrAppend(&text, problem.source(), ": ");
    } else if (!file.empty()) {
      absl::StrAppend(&text, file, ":");
      if (problem.line() > 0) absl::StrAppend(&text, problem.line(), ":");
      text += ' ';
    }
    // The source may name it already.
    const bool named = absl::EndsWith(problem.source(), absl::StrCat(" ", problem.path()));
    if (!problem.path().empty() && !named) absl::StrAppend(&text, problem.path(), ": ");
    absl::StrAppend(&text, problem.message(), "\n");
  }
  return text;
}

}  // namespace muster::jobspec
