#include "worker/models/language/hugging_face.h"

#include <unistd.h>

#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/mapped_file.h"
#include "common/overloaded/overloaded.h"
#include "common/safetensors/strict_json.h"
#include "common/safetensors/tensor_set.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/models/language/decoder.h"
#include "worker/models/language/gpt2.h"
#include "worker/models/language/hugging_face_config.h"

namespace muster::models {
namespace {

using nlohmann::ordered_json;

// Far more than any model has; a bound for hostile files.
constexpr uint64_t kLargestConfig = uint64_t{1} << 20;

// Says what the folder is instead, if it has no config.json.
absl::Status NoModel(const std::string& folder) {
  const std::string adapter = files::JoinPath(folder, "adapter_config.json");
  const bool is_adapter = access(adapter.c_str(), F_OK) == 0;
  return absl::NotFoundError(absl::StrCat(
      folder, ": has no config.json",
      is_adapter ? ", but an adapter_config.json: this is an adapter, not a model" : "",
      "; expected a model folder of Hugging Face, as save_pretrained writes it"));
}

// NOT_FOUND if the folder has no weights in safetensors.
absl::Status CheckWeights(const std::string& folder) {
  const auto has = [&](const char* name) {
    return access(files::JoinPath(folder, name).c_str(), F_OK) == 0;
  };
  if (access(safetensors::PathOfModel(folder).c_str(), F_OK) == 0) return absl::OkStatus();
  const bool pickled = has("pytorch_model.bin") || has("pytorch_model.bin.index.json");
  return absl::NotFoundError(absl::StrCat(
      folder, ": has no model.safetensors and no model.safetensors.index.json",
      pickled
          ? ", but a pytorch_model.bin; expected safetensors: open the model in Python and save "
            "it again (save_pretrained)"
          : "; expected the weights of the model"));
}

// Returns the config.json of the exported model: the same, with the type of its weights, float32.
// GPT-2 has as many positions as a sample.
std::string Exported(const std::string& text, const HuggingFaceShape& shape) {
  ordered_json config = ordered_json::parse(text);
  // transformers before 5 wrote torch_dtype.
  const bool older = config.contains("torch_dtype") && !config.contains("dtype");
  config[older ? "torch_dtype" : "dtype"] = "float32";
  if (const auto* gpt2 = std::get_if<v1::Gpt2Spec>(&shape)) {
    config["n_positions"] = gpt2->context();
    if (config.contains("n_ctx")) config["n_ctx"] = gpt2->context();
  }
  return config.dump(2) + "\n";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateHuggingFace(const std::string& folder, int64_t context,
                                                         uint64_t seed) {
  const std::string path = files::JoinPath(folder, "config.json");
  const auto file = files::MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return NoModel(folder);
  if (!file.ok()) return file.status();
  if (file->size() > kLargestConfig) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected at most ", kLargestConfig, " bytes, found ", file->size()));
  }
  const std::string text(reinterpret_cast<const char*>(file->data()), file->size());
  RETURN_IF_ERROR(CheckWeights(folder));
  const auto parsed = safetensors::ParseStrictJson(file->data(), file->size());
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  auto shape = ReadHuggingFaceConfig(*parsed, context);
  // Not the folder is wrong, but the job file.
  if (absl::StartsWith(shape.status().message(), "model.context")) return shape.status();
  if (!shape.ok()) {
    return Annotate(shape.status(), absl::StrCat(path,
                                                 ": does not fit model.hf "
                                                 "(docs/how-to/hugging-face.md#what-is-refused)"));
  }
  files::Hasher hash;
  hash.Update(file->data(), file->size());
  ModelIdentity identity{.kind = "hf",
                         .name = absl::StrCat("hf ", folder),
                         .config = Exported(text, *shape),
                         .hash = hash.Hex()};
  return std::visit(Overloaded{[&](const v1::Gpt2Spec& gpt2) {
                                 return CreateGpt2As(
                                     std::move(identity), gpt2,
                                     context > 0 ? Positions::kFewer : Positions::kAll, seed);
                               },
                               [&](const DecoderShape& decoder) {
                                 return CreateDecoder(decoder, std::move(identity), seed);
                               }},
                    *shape);
}

}  // namespace muster::models
