// muster-logits: writes a model's logits and gradients for given weights and tokens. The parity
// tests use it.
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/files/mapped_file.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/load_weights.h"
#include "worker/checkpoint/weights.h"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

namespace muster {
namespace {

struct Flags {
  std::string model = "gpt2";
  std::string options = "{}";
  std::string weights;
  std::string tokens;
  std::string out;
  std::string gradients;
  std::string export_path;
  int64_t batch = 1;
};

// Returns the file's uint32 tokens as int64 [batch, tokens / batch].
absl::StatusOr<at::Tensor> ReadTokens(const std::string& path, int64_t batch) {
  ASSIGN_OR_RETURN(const files::MappedFile file, files::MappedFile::Open(path));
  const int64_t count = static_cast<int64_t>(file.size() / sizeof(uint32_t));
  if (count == 0 || count % batch != 0 || file.size() % sizeof(uint32_t) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected a multiple of ", batch, " uint32 tokens, found ", file.size(), " bytes"));
  }
  const at::Tensor tokens = at::empty({batch, count / batch}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t token;
    std::memcpy(&token, file.data() + i * sizeof(token), sizeof(token));
    tokens.data_ptr<int64_t>()[i] = token;
  }
  return tokens;
}

// Writes the gradients of the mean loss of predicting each row's next tokens, by parameter.
absl::Status SaveGradients(const std::string& path, const at::Tensor& tokens,
                           models::Model& model) {
  const int64_t length = tokens.size(1) - 1;
  const models::Batch batch = {tokens.narrow(1, 0, length), tokens.narrow(1, 1, length)};
  RETURN_IF_ERROR(model.CheckBatch(batch));
  models::ForwardContext context(models::Mode::kTrain, models::MakeGenerator(0));
  model.Loss(batch, context).mean_loss.backward();
  std::vector<models::Parameter> gradients;
  for (const models::Parameter& parameter : model.Parameters()) {
    gradients.push_back({parameter.name, parameter.tensor.grad()});
  }
  return checkpoint::SaveWeights(path, gradients);
}

absl::Status Run(const Flags& flags) {
  at::set_num_threads(1);
  const auto options = nlohmann::json::parse(flags.options, nullptr, /*allow_exceptions=*/false);
  if (options.is_discarded()) return absl::InvalidArgumentError("--options: not JSON");
  ASSIGN_OR_RETURN(const auto model, models::CreateFromJson(flags.model, options, /*seed=*/0));
  if (!flags.weights.empty()) {
    RETURN_IF_ERROR(checkpoint::LoadWeights({.path = flags.weights}, *model).status());
  }
  if (!flags.export_path.empty()) {
    RETURN_IF_ERROR(checkpoint::ExportModel(flags.export_path, *model));
  }
  if (flags.tokens.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const at::Tensor tokens, ReadTokens(flags.tokens, flags.batch));
  RETURN_IF_ERROR(model->CheckBatch({tokens, tokens}));
  if (tokens.max().item<int64_t>() >= model->Input().vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.tokens, ": a token is beyond the vocabulary"));
  }
  if (!flags.gradients.empty()) {
    RETURN_IF_ERROR(SaveGradients(flags.gradients, tokens, *model));
  }
  const at::NoGradGuard no_grad;
  models::ForwardContext context(models::Mode::kEvaluate, models::MakeGenerator(0));
  return checkpoint::SaveWeights(flags.out, {{"logits", model->Logits(tokens, context)}});
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::Flags flags;
  CLI::App app("Writes a model's logits and gradients, for parity tests");
  app.add_option("--model", flags.model, "kind of model");
  app.add_option("--options", flags.options, "its options as JSON");
  app.add_option("--weights", flags.weights, "safetensors file or index; fresh values without it");
  auto* tokens = app.add_option("--tokens", flags.tokens, "file of little-endian uint32 tokens");
  app.add_option("--batch", flags.batch, "rows that the tokens make")->check(CLI::PositiveNumber);
  auto* out = app.add_option("--out", flags.out, "safetensors file to write: `logits` [B, C, V]");
  tokens->needs(out);
  app.add_option("--gradients", flags.gradients,
                 "safetensors file to write: the gradients of the mean loss, by parameter")
      ->needs(tokens);
  app.add_option("--export", flags.export_path, "also export the weights (and config.json) there");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = muster::Run(flags);
  if (!status.ok()) std::cerr << "muster-logits: " << status << "\n";
  return status.ok() ? 0 : 1;
}
