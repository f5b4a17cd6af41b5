#include "worker/models/registry.h"

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/models/built_in.h"
#include "worker/models/exported/exported.h"
#include "worker/models/language/hugging_face.h"
#include "worker/models/plugin/plugin.h"
#include "worker/models/torchscript/torchscript.h"

namespace muster::models {
namespace {

// The job's own checks know the vocabularies of the other models.
absl::Status CheckTokenizer(const v1::ModelSpec& spec, const Model& model) {
  const int64_t tokens = model.Input().vocab_size;
  if (spec.tokenizer() != v1::ModelSpec::BYTES || tokens >= 256) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model.tokenizer: found bytes with a vocabulary of ", tokens, " (", model.name(),
                   "); allowed: with 256 tokens or more, so that each byte is a token"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Create(const v1::ModelSpec& spec, uint64_t seed) {
  switch (spec.kind_case()) {
    case v1::ModelSpec::kGpt2:
      return CreateGpt2(spec.gpt2(), seed);
    case v1::ModelSpec::kMlp:
      return CreateMlp(spec.mlp(), seed);
    case v1::ModelSpec::kLlama:
      return CreateLlama(spec.llama(), seed);
    case v1::ModelSpec::kConvnet:
      return CreateConvnet(spec.convnet(), seed);
    case v1::ModelSpec::kTorchscript:
      return CreateTorchscript(spec.torchscript());
    case v1::ModelSpec::kPlugin:
      return CreatePlugin(spec.plugin(), seed);
    case v1::ModelSpec::kExported: {
      ASSIGN_OR_RETURN(auto model, CreateExported(spec.exported(), spec.context()));
      RETURN_IF_ERROR(CheckTokenizer(spec, *model));
      return model;
    }
    case v1::ModelSpec::kHf: {
      ASSIGN_OR_RETURN(auto model,
                       CreateHuggingFace(spec.hf(), spec.context(), spec.vocab_size(), seed));
      RETURN_IF_ERROR(CheckTokenizer(spec, *model));
      return model;
    }
    case v1::ModelSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("model: no known alternative is set");
}

}  // namespace muster::models
