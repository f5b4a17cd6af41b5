#include "worker/train/job/model_files.h"

#include "common/files/files.h"
#include "common/safetensors/tensor_set.h"

namespace muster::train {

const char* WeightsField(const v1::ModelSpec& model) {
  return model.has_hf() ? "model.hf" : "model.weights";
}

std::string WeightsPath(const v1::ModelSpec& model) {
  if (model.has_hf()) return safetensors::PathOfModel(model.hf());
  return model.has_weights_from() ? model.weights_from().file() : model.weights();
}

std::string TokenizerPath(const v1::ModelSpec& model) {
  const std::string& folder = model.has_hf() ? model.hf() : model.exported();
  return folder.empty() ? "" : files::JoinPath(folder, "tokenizer.json");
}

}  // namespace muster::train
