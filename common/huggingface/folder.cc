#include "common/huggingface/folder.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/mapped_file.h"
#include "common/safetensors/strict_json.h"
#include "common/safetensors/tensor_set.h"
#include "common/status/status.h"

namespace muster::huggingface {
namespace {

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

}  // namespace

absl::StatusOr<Description> ReadFolder(const std::string& folder, int64_t context,
                                       int64_t vocab_size) {
  const std::string path = files::JoinPath(folder, "config.json");
  const auto file = files::MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return NoModel(folder);
  if (!file.ok()) return file.status();
  if (file->size() > kLargestConfig) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected at most ", kLargestConfig, " bytes, found ", file->size()));
  }
  RETURN_IF_ERROR(CheckWeights(folder));
  const auto parsed = safetensors::ParseStrictJson(file->data(), file->size());
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  auto shape = ReadConfig(*parsed, context, vocab_size);
  // Not the folder is wrong, but the job file.
  if (absl::StartsWith(shape.status().message(), "model.context")) return shape.status();
  if (!shape.ok()) {
    return Annotate(shape.status(), absl::StrCat(path,
                                                 ": does not fit model.hf "
                                                 "(docs/how-to/hugging-face.md#what-is-refused)"));
  }
  return Description{std::string(reinterpret_cast<const char*>(file->data()), file->size()),
                     *std::move(shape)};
}

}  // namespace muster::huggingface
