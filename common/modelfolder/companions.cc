#include "common/modelfolder/companions.h"

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/hashing_writer.h"
#include "common/modelfolder/folder.h"
#include "common/modelfolder/plan.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"

namespace muster::modelfolder {
namespace {

using Json = nlohmann::ordered_json;
using safetensors::DType;

Json Parse(const std::string& text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

const char* TorchName(DType dtype) {
  if (dtype == DType::kBF16) return "bfloat16";
  return dtype == DType::kF16 ? "float16" : "float32";
}

}  // namespace

std::string FolderConfig(const std::string& config, const std::string& source, DType dtype) {
  Json result = Parse(config);
  if (!result.is_object()) return "";
  const Json first = Parse(source);
  const auto kind = [](const Json& json) {
    return json.is_object() && json.contains("model_type") ? json["model_type"] : Json();
  };
  if (!kind(first).is_null() && kind(first) == kind(result)) {
    for (const auto& [key, value] : first.items()) {
      // Its name before transformers 5.
      if (key == "torch_dtype") continue;
      if (!result.contains(key) || result[key].is_null()) result[key] = value;
    }
  }
  result["dtype"] = TorchName(dtype);
  return result.dump(2) + "\n";
}

namespace {

constexpr char kTokenizerName[] = "tokenizer.json";

absl::Status WriteText(const std::string& folder, const std::string& name, const std::string& text,
                       files::Disk& disk, Companions* result) {
  ASSIGN_OR_RETURN(const auto writer,
                   files::HashingWriter::Create(files::JoinPath(folder, name), disk));
  RETURN_IF_ERROR(writer->Append(text.data(), text.size()));
  RETURN_IF_ERROR(writer->Finish().status());
  result->files.push_back(name);
  result->bytes += text.size();
  return absl::OkStatus();
}

// The tokenizer that made the training data, if its file is still the same.
absl::Status WriteTokenizer(const tokenizer::Source& tokenizer, const std::string& folder,
                            files::Disk& disk, Companions* result) {
  if (!tokenizer.known()) return absl::OkStatus();
  const auto text = files::ReadFile(tokenizer.path);
  if (!text.ok()) {
    result->notes.push_back(absl::StrCat(
        "there is no tokenizer.json, because the one that made the training data could not be "
        "read: ",
        Message(text.status())));
    return absl::OkStatus();
  }
  if (files::HashBytes(text->data(), text->size()) != tokenizer.hash) {
    result->notes.push_back(absl::StrCat("there is no tokenizer.json, because ", tokenizer.path,
                                         " has changed since it made the training data"));
    return absl::OkStatus();
  }
  return WriteText(folder, kTokenizerName, *text, disk, result);
}

}  // namespace

absl::StatusOr<Companions> WriteCompanions(const CompanionOptions& options,
                                           const std::string& folder, files::Disk& disk) {
  Companions result;
  if (!options.index.empty()) {
    RETURN_IF_ERROR(WriteText(folder, kIndexName, options.index, disk, &result));
  }
  const bool has_source = !options.first_weights.empty();
  const std::string source = has_source ? files::ParentDirectory(options.first_weights) : "";
  std::string their_config;
  if (has_source) {
    their_config = files::ReadFile(files::JoinPath(source, kConfigName)).value_or("");
  }
  const std::string config = FolderConfig(options.config, their_config, options.dtype);
  if (!config.empty()) {
    RETURN_IF_ERROR(WriteText(folder, kConfigName, config, disk, &result));
  } else {
    result.notes.push_back(
        "there is no config.json, because the settings of a model that transformers has are not "
        "known");
  }
  if (!has_source) {
    RETURN_IF_ERROR(WriteTokenizer(options.tokenizer, folder, disk, &result));
    return result;
  }
  ASSIGN_OR_RETURN(const auto copied, CopyTokenizer(source, folder, disk));
  result.files.insert(result.files.end(), copied.files.begin(), copied.files.end());
  for (const std::string& why : copied.unreadable) {
    result.notes.push_back(absl::StrCat("a file of the tokenizer could not be read: ", why));
  }
  if (!copied.has_tokenizer && options.tokenizer.known()) {
    RETURN_IF_ERROR(WriteTokenizer(options.tokenizer, folder, disk, &result));
  } else if (!copied.has_tokenizer && copied.unreadable.empty()) {
    result.notes.push_back(absl::StrCat("there are no files of a tokenizer, because ", source,
                                        ", from which the first weights came, has none"));
  }
  return result;
}

}  // namespace muster::modelfolder
