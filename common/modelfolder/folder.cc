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
#include "common/glob/glob.h"
#include "common/modelfolder/plan.h"
#include "common/status/status.h"

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
    // The folder of a download may consist of links to files that are elsewhere.
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
  // Who makes a temporary folder locks it (client/checkpoints/new_folder.h): nobody takes the old
  // one for his own while it is removed.
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

absl::Status RemoveFolder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? files::ErrnoStatus(error.value(), "remove", path) : absl::OkStatus();
}

}  // namespace muster::modelfolder
