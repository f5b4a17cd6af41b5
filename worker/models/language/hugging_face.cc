#include "worker/models/language/hugging_face.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/files/hash.h"
#include "common/huggingface/folder.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/models/language/decoder.h"
#include "worker/models/language/gpt2.h"

namespace muster::models {
namespace {

using nlohmann::ordered_json;

// Returns the config.json of the exported model: the same, with the type of its weights, float32.
// The vocabulary is the model's, and GPT-2 has as many positions as a sample.
std::string Exported(const std::string& text, const huggingface::ModelShape& shape) {
  ordered_json config = ordered_json::parse(text);
  // transformers before 5 wrote torch_dtype.
  const bool older = config.contains("torch_dtype") && !config.contains("dtype");
  config[older ? "torch_dtype" : "dtype"] = "float32";
  if (const auto* gpt2 = std::get_if<v1::Gpt2Spec>(&shape)) {
    config["vocab_size"] = gpt2->vocab_size();
    config["n_positions"] = gpt2->context();
    if (config.contains("n_ctx")) config["n_ctx"] = gpt2->context();
  }
  if (const auto* decoder = std::get_if<DecoderShape>(&shape)) {
    config["vocab_size"] = decoder->vocab_size;
  }
  return config.dump(2) + "\n";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateHuggingFace(const std::string& folder, int64_t context,
                                                         int64_t vocab_size, uint64_t seed) {
  ASSIGN_OR_RETURN(const huggingface::Description model,
                   huggingface::ReadFolder(folder, context, vocab_size));
  files::Hasher hash;
  hash.Update(model.text.data(), model.text.size());
  ModelIdentity identity{.kind = "hf",
                         .name = absl::StrCat("hf ", folder),
                         .config = Exported(model.text, model.shape),
                         .hash = hash.Hex()};
  return std::visit(Overloaded{[&](const v1::Gpt2Spec& gpt2) {
                                 return CreateGpt2As(
                                     std::move(identity), gpt2,
                                     context > 0 ? Positions::kFewer : Positions::kAll, seed);
                               },
                               [&](const DecoderShape& decoder) {
                                 return CreateDecoder(decoder, std::move(identity), seed);
                               }},
                    model.shape);
}

}  // namespace muster::models
