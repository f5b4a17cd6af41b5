#include "worker/models/registry.h"

#include "worker/models/built_in.h"
#include "worker/models/exported/exported.h"
#include "worker/models/plugin/plugin.h"
#include "worker/models/torchscript/torchscript.h"

namespace muster::models {

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
    case v1::ModelSpec::kExported:
      return CreateExported(spec.exported());
    case v1::ModelSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("model: no known alternative is set");
}

}  // namespace muster::models
