#include "common/modelfolder/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/hashing_writer.h"
#include "common/glob/glob.h"
#include "common/modelfolder/plan.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"

namespace muster::modelfolder {
namespace {

namespace fs = std::filesystem;

constexpr char kGenerationConfig[] = "generation_config.json";
constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
    kGenerationConfig,
};

bool IsTokenizerFile(const std::string& name) {
  return std::find(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), name) !=
         std::end(kTokenizerFiles);
}

absl::Status SyncFile(const std::string& path, files::Disk& disk) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return files::ErrnoStatus(errno, "open", path);
  const absl::Status synced = disk.Sync(fd, path);
  close(fd);
  return synced;
}

}  // namespace

bool IsModelFile(const std::string& name) {
  return name == kConfigName || name == kIndexName || name == "model.safetensors" ||
         GlobMatches("model-?????-of-?????.safetensors", name) || IsTokenizerFile(name);
}

absl::Status CheckTarget(const std::string& path, bool overwrite) {
  std::error_code error;
  const fs::file_status found = fs::symlink_status(path, error);
  if (found.type() == fs::file_type::not_found) return absl::OkStatus();
  if (error) return files::ErrnoStatus(error.value(), "look at", path);
  if (found.type() != fs::file_type::directory) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": is no folder"));
  }
  bool empty = true;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    empty = false;
    const std::string name = it->path().filename().string();
    if (!overwrite) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, ": the folder exists and is not empty (it contains '", name,
                       "'); a folder that contains only a model is replaced with --overwrite"));
    }
    // The folder of a download may consist of links to other files.
    const bool file = it->symlink_status(error).type() == fs::file_type::regular;
    if (!file || !IsModelFile(name)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": contains '", name,
                       file ? "', which is no file of a model" : "', which is no regular file",
                       ", so the folder is not replaced"));
    }
  }
  if (error) return files::ErrnoStatus(error.value(), "list", path);
  return absl::OkStatus();
}

absl::Status PlaceFolder(const std::string& temporary, const std::string& path, bool overwrite,
                         files::Disk& disk) {
  RETURN_IF_ERROR(disk.SyncDirectory(temporary));
  RETURN_IF_ERROR(CheckTarget(path, overwrite));
  std::error_code error;
  if (!fs::exists(path, error) || fs::is_empty(path, error)) {
    return files::RenameDurably(temporary, path, disk);
  }
  // Locks the old folder while it is removed, as writers lock temporary folders
  // (client/checkpoints/new_folder.h). So no writer takes the old folder for its own.
  const int old = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (old >= 0) flock(old, LOCK_EX | LOCK_NB);
  absl::Status status = disk.Exchange(temporary, path);
  if (status.ok()) status = disk.SyncDirectory(files::ParentDirectory(path));
  if (status.ok()) RemoveFolder(temporary).IgnoreError();
  if (old >= 0) close(old);
  return status;
}

absl::StatusOr<CopiedTokenizer> CopyTokenizer(const std::string& from, const std::string& to,
                                              files::Disk& disk) {
  CopiedTokenizer copied;
  for (const std::string name : kTokenizerFiles) {
    const std::string source = files::JoinPath(from, name);
    if (access(source.c_str(), R_OK) != 0) {
      if (errno != ENOENT && errno != ENOTDIR) {
        copied.unreadable.push_back(absl::StrCat(source, ": ", std::strerror(errno)));
      }
      continue;
    }
    const std::string target = files::JoinPath(to, name);
    std::error_code error;
    fs::copy_file(source, target, error);
    if (error) return files::ErrnoStatus(error.value(), "copy " + source + " to", target);
    RETURN_IF_ERROR(SyncFile(target, disk));
    copied.files.push_back(name);
    copied.has_tokenizer |= name != kGenerationConfig;
  }
  return copied;
}

absl::StatusOr<std::map<std::string, std::string>> ReadTokenizer(const std::string& from) {
  std::map<std::string, std::string> contents;
  for (const char* name : kTokenizerFiles) {
    auto file = files::ReadFile(files::JoinPath(from, name));
    if (absl::IsNotFound(file.status())) continue;
    RETURN_IF_ERROR(file.status());
    contents[name] = *std::move(file);
  }
  return contents;
}

absl::Status RemoveFolder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? files::ErrnoStatus(error.value(), "remove", path) : absl::OkStatus();
}

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
      // The name of `dtype` before transformers 5.
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

// Writes the tokenizer of the training data, if its file is unchanged.
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
