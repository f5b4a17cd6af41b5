#include <string>

#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/validate.h"

namespace muster::jobspec {
namespace {

using Paths = google::protobuf::RepeatedPtrField<std::string>;

enum class Reads { kTokens, kRows, kUnknown };

Reads WhatReads(const v1::ModelSpec& model) {
  switch (model.kind_case()) {
    case v1::ModelSpec::kGpt2:
    case v1::ModelSpec::kHf:
    case v1::ModelSpec::kLlama:
      return Reads::kTokens;
    case v1::ModelSpec::kMlp:
    case v1::ModelSpec::kConvnet:
      return Reads::kRows;
    case v1::ModelSpec::kTorchscript:
      if (model.torchscript().vocab_size() > 0) return Reads::kTokens;
      return model.torchscript().inputs().empty() ? Reads::kUnknown : Reads::kRows;
    case v1::ModelSpec::kExported:
    case v1::ModelSpec::kPlugin:
    case v1::ModelSpec::KIND_NOT_SET:
      return Reads::kUnknown;
  }
  return Reads::kUnknown;
}

class DataValidator {
 public:
  DataValidator(const v1::JobSpec& spec, ProblemList* problems)
      : spec_(spec), problems_(problems) {}

  // Whether a data set must have labels, or may have labels.
  enum class Labels { kNeeded, kOptional };

  void DataSet(const std::string& path, const v1::DataSet& data, Labels labels = Labels::kNeeded) {
    switch (data.kind_case()) {
      case v1::DataSet::kTokens:
        if (data.tokens().mixture().empty()) {
          RankFiles(path, "tokens", data.tokens().path(), data.per_rank());
        } else {
          NoRankFiles(path, "tokens.mixture", data.per_rank());
          PathOrMixture(path, "tokens", data.tokens());
        }
        Fits(path + ".tokens", Reads::kTokens);
        break;
      case v1::DataSet::kDocuments:
        NoRankFiles(path, "documents", data.per_rank());
        PathOrMixture(path, "documents", data.documents());
        Fits(path + ".documents", Reads::kTokens);
        if (labels == Labels::kOptional) {
          Add(path + ".documents", "cannot be predicted; allowed: tokens");
        }
        break;
      case v1::DataSet::kSafetensors:
        RankFiles(path, "safetensors", data.safetensors().path(), data.per_rank());
        Fits(path + ".safetensors", Reads::kRows);
        break;
      case v1::DataSet::kIdx:
        NoRankFiles(path, "idx", data.per_rank());
        Pairs(labels, path + ".idx", "images", data.idx().images(), data.idx().labels());
        Fits(path + ".idx", Reads::kRows);
        if (spec_.loss().has_mse() && labels == Labels::kNeeded) {
          Add(path + ".idx",
              "found classes as labels, but the loss mse needs numbers; allowed: safetensors, npy");
        }
        break;
      case v1::DataSet::kNpy:
        NoRankFiles(path, "npy", data.per_rank());
        if (data.npy().arrays().empty()) {
          Pairs(labels, path + ".npy", "inputs", data.npy().inputs(), data.npy().labels());
        }
        Named(path + ".npy", data.npy());
        Fits(path + ".npy", Reads::kRows);
        break;
      case v1::DataSet::KIND_NOT_SET:
        break;
    }
  }

 private:
  void Add(const std::string& path, const std::string& message) { problems_->Add(path, message); }

  void RankFiles(const std::string& path, const std::string& kind, const Paths& common,
                 const Paths& per_rank) {
    if (per_rank.empty()) {
      if (common.empty()) {
        Add(absl::StrCat(path, ".", kind, ".path"),
            absl::StrCat("is missing; allowed: one or more paths, ", path, ".per_rank",
                         kind == "tokens" ? ", or mixture" : ""));
      }
    } else if (!common.empty()) {
      Add(path + ".per_rank",
          absl::StrCat("found together with ", kind, ".path; allowed: one of the two"));
    } else if (static_cast<uint32_t>(per_rank.size()) != spec_.world_size()) {
      Add(path + ".per_rank",
          absl::StrCat("found ", per_rank.size(), "; allowed: as many paths as world_size, ",
                       spec_.world_size()));
    }
  }

  void NoRankFiles(const std::string& path, const std::string& kind, const Paths& per_rank) {
    if (per_rank.empty()) return;
    Add(path + ".per_rank",
        absl::StrCat("found together with ", kind, "; allowed: only with tokens and safetensors"));
  }

  // TokenData or DocumentData.
  template <typename Data>
  void PathOrMixture(const std::string& path, const std::string& kind, const Data& data) {
    if (!data.mixture().empty() && path != "data.train") {
      Add(absl::StrCat(path, ".", kind, ".mixture"),
          "would use samples several times; allowed only in data.train; here: path");
    }
    if (data.path().empty() != data.mixture().empty()) return;
    Add(absl::StrCat(path, ".", kind, ".path"),
        data.path().empty() ? "is missing; allowed: one or more paths, or mixture"
                            : "found together with mixture; allowed: one of the two");
  }

  // Arrays by name take the place of `inputs`. Only the model says whether they need labels.
  void Named(const std::string& path, const v1::NpyData& npy) {
    if (!npy.arrays().empty() && WhatReads(spec_.model()) == Reads::kRows) {
      return Add(path + ".arrays", absl::StrCat("found with the model ", KindOf(spec_.model()),
                                                ", which takes one input; allowed: inputs"));
    }
    if (npy.inputs().empty() == npy.arrays().empty()) {
      return Add(path + ".inputs",
                 npy.inputs().empty() ? "is missing or empty; allowed: one or more paths, or arrays"
                                      : "found together with arrays; allowed: one of the two");
    }
    for (int i = 0; i < npy.arrays_size(); ++i) {
      const v1::NpyArray& one = npy.arrays(i);
      const std::string at = absl::StrCat(path, ".arrays[", i, "]");
      for (int before = 0; before < i; ++before) {
        if (npy.arrays(before).name() != one.name()) continue;
        Add(at + ".name", absl::StrCat("found '", one.name(), "' twice; allowed: each name once"));
      }
      const int expected = npy.arrays(0).path_size();
      if (one.path_size() != expected) {
        Add(at + ".path", absl::StrCat("found ", one.path_size(), "; allowed: as many paths as ",
                                       npy.arrays(0).name(), ", ", expected));
      }
    }
    if (!npy.arrays().empty() && !npy.labels().empty() &&
        npy.labels_size() != npy.arrays(0).path_size()) {
      Add(path + ".labels",
          absl::StrCat("found ", npy.labels_size(), "; allowed: as many paths as ",
                       npy.arrays(0).name(), ", ", npy.arrays(0).path_size()));
    }
  }

  // Requires as many labels as inputs.
  void Pairs(Labels needed, const std::string& path, const std::string& name, const Paths& inputs,
             const Paths& labels) {
    if (labels.empty() && needed == Labels::kNeeded) {
      Add(path + ".labels", "is missing or empty; allowed: one or more paths");
    }
    if (inputs.empty() || labels.empty() || inputs.size() == labels.size()) return;
    Add(path + ".labels", absl::StrCat("found ", labels.size(), "; allowed: as many paths as ",
                                       name, ", ", inputs.size()));
  }

  // Checks that the model can read this kind of data.
  void Fits(const std::string& path, Reads data) {
    const Reads model = WhatReads(spec_.model());
    if (model == Reads::kUnknown || model == data) return;
    Add(path, data == Reads::kTokens
                  ? absl::StrCat("found tokens, but the model ", KindOf(spec_.model()),
                                 " reads rows of numbers; allowed: safetensors, idx, npy")
                  : absl::StrCat("found rows of numbers, but the model ", KindOf(spec_.model()),
                                 " reads tokens; allowed: tokens, documents"));
  }

  const v1::JobSpec& spec_;
  ProblemList* const problems_;
};

}  // namespace

std::string KindOf(const v1::ModelSpec& model) {
  const auto* oneof = v1::ModelSpec::descriptor()->FindOneofByName("kind");
  return model.GetReflection()->GetOneofFieldDescriptor(model, oneof)->name();
}

void ValidateData(const v1::JobSpec& spec, ProblemList* problems) {
  DataValidator validator(spec, problems);
  if (spec.data().has_train()) validator.DataSet("data.train", spec.data().train());
  if (spec.data().has_validate()) validator.DataSet("data.validate", spec.data().validate());
  if (spec.data().has_test()) validator.DataSet("data.test", spec.data().test());
  if (spec.data().has_predict()) {
    validator.DataSet("data.predict", spec.data().predict(), DataValidator::Labels::kOptional);
  }
}

}  // namespace muster::jobspec
