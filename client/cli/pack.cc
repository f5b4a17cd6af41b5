#include "client/cli/pack.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/partial_file.h"
#include "common/filekind/file_kind.h"
#include "common/files/mapped_file.h"
#include "common/status/status.h"
#include "common/tokenizer/sidecar.h"

namespace muster::cli {
namespace {

constexpr size_t kChunk = 1 << 20;

class TokenWriter {
 public:
  explicit TokenWriter(std::string path) : path_(std::move(path)) {}

  absl::Status Open() {
    ASSIGN_OR_RETURN(file_, StagedFile::Create(path_));
    return absl::OkStatus();
  }

  absl::Status Append(const uint8_t* bytes, size_t count) {
    buffer_.resize(2 * count);
    for (size_t i = 0; i < count; ++i) {
      buffer_[2 * i] = bytes[i];
      buffer_[2 * i + 1] = 0;
      ++counts_[bytes[i]];
    }
    tokens_ += count;
    return file_->Append(buffer_.data(), buffer_.size());
  }

  absl::Status MakeDurable() { return file_->MakeDurable(); }
  absl::Status Publish() {
    // An old sidecar is removed: its file may have been made with a tokenizer, and these tokens
    // were not.
    std::error_code error;
    std::filesystem::remove(tokenizer::SidecarPath(path_), error);
    if (error) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot remove ", tokenizer::SidecarPath(path_),
                       ", which describes the tokens that were there: ", error.message()));
    }
    return file_->Publish();
  }

  PackedFile result() const {
    return {.path = path_, .tokens = tokens_, .unigram_entropy = UnigramEntropy()};
  }

 private:
  double UnigramEntropy() const {
    double entropy = 0;
    for (const uint64_t count : counts_) {
      if (count == 0) continue;
      const double share = static_cast<double>(count) / static_cast<double>(tokens_);
      entropy -= share * std::log(share);
    }
    return entropy;
  }

  const std::string path_;
  std::unique_ptr<StagedFile> file_;
  std::vector<uint8_t> buffer_;
  uint64_t tokens_ = 0;
  std::array<uint64_t, 256> counts_ = {};
};

absl::Status Check(const PackOptions& options) {
  const bool splits = options.split.has_value();
  if (splits && !(*options.split > 0 && *options.split < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--split ", *options.split, ": allowed is a number above 0 and below 1"));
  }
  if (splits != !options.out_rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--split and --out-rest belong together: ", splits ? "--out-rest" : "--split",
                     " is missing"));
  }
  std::error_code ignored;
  for (const std::string& out : {options.out, options.out_rest}) {
    for (const std::string& input : options.inputs) {
      if (std::filesystem::equivalent(out, input, ignored) ||
          std::filesystem::equivalent(tokenizer::SidecarPath(out), input, ignored)) {
        return absl::InvalidArgumentError(absl::StrCat(out, " is both input and output"));
      }
    }
  }
  if (splits && std::filesystem::weakly_canonical(options.out, ignored) ==
                    std::filesystem::weakly_canonical(options.out_rest, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat("--out and --out-rest are both ", options.out));
  }
  return absl::OkStatus();
}

absl::Status CheckInput(const std::string& path, filekind::Wanted wanted) {
  const auto file = files::MappedFile::Open(path);
  if (!file.ok()) return absl::OkStatus();
  return filekind::CheckKind(path, file->data(), file->size(), wanted);
}

}  // namespace

absl::Status CheckPackInputs(const std::vector<std::string>& inputs, const std::string& tokenizer) {
  for (const std::string& input : inputs) {
    RETURN_IF_ERROR(CheckInput(input, filekind::Wanted::kText));
  }
  return tokenizer.empty() ? absl::OkStatus() : CheckInput(tokenizer, filekind::Wanted::kJson);
}

absl::StatusOr<std::vector<PackedFile>> Pack(const PackOptions& options,
                                             const std::function<bool()>& interrupted) {
  RETURN_IF_ERROR(Check(options));
  std::vector<files::MappedFile> inputs;
  uint64_t total = 0;
  for (const std::string& path : options.inputs) {
    ASSIGN_OR_RETURN(files::MappedFile input, files::MappedFile::Open(path));
    total += input.size();
    inputs.push_back(std::move(input));
  }
  std::vector<std::unique_ptr<TokenWriter>> writers;
  writers.push_back(std::make_unique<TokenWriter>(options.out));
  uint64_t first = total;
  if (options.split.has_value()) {
    writers.push_back(std::make_unique<TokenWriter>(options.out_rest));
    first = static_cast<uint64_t>(std::floor(static_cast<double>(total) * *options.split));
  }
  if (first == 0 || (writers.size() == 2 && first == total)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the inputs have ", total, " bytes together, which leaves ",
                     writers.size() == 1 ? "the token file" : "one of the two token files",
                     " without a token"));
  }
  for (const auto& writer : writers) RETURN_IF_ERROR(writer->Open());
  uint64_t done = 0;
  for (const files::MappedFile& input : inputs) {
    for (size_t at = 0; at < input.size();) {
      if (interrupted()) return absl::CancelledError("interrupted");
      const bool in_first = done < first;
      size_t count = std::min(kChunk, input.size() - at);
      if (in_first) count = std::min<uint64_t>(count, first - done);
      RETURN_IF_ERROR(writers[in_first ? 0 : 1]->Append(input.data() + at, count));
      at += count;
      done += count;
    }
  }
  for (const auto& writer : writers) RETURN_IF_ERROR(writer->MakeDurable());
  std::vector<PackedFile> results;
  for (const auto& writer : writers) {
    RETURN_IF_ERROR(writer->Publish());
    results.push_back(writer->result());
  }
  return results;
}

namespace {

constexpr char kModule[] = "muster._pack_command";
constexpr int kBeatMillis = 100;

std::vector<std::string> Command(const PackOptions& options, const TokenizerOptions& tokenizer) {
  std::vector<std::string> command = {tokenizer.python,    "-m",    kModule,    "--tokenizer",
                                      tokenizer.tokenizer, "--out", options.out};
  if (options.split.has_value()) {
    command.insert(command.end(), {"--split", absl::StrCat(*options.split)});
  }
  if (!options.out_rest.empty()) {
    command.insert(command.end(), {"--out-rest", options.out_rest});
  }
  if (!tokenizer.separator.empty()) {
    command.insert(command.end(), {absl::StrCat("--separator=", tokenizer.separator)});
  }
  command.push_back("--");
  command.insert(command.end(), options.inputs.begin(), options.inputs.end());
  return command;
}

absl::Status NoPackage(const std::string& python, const std::string& found) {
  return absl::FailedPreconditionError(absl::StrCat(
      "--tokenizer FILE needs a Python with two packages: `muster` (install its wheel, "
      "docs/how-to/install.md) and `tokenizers` (`pip install tokenizers`); ",
      python, " cannot be used: ", found, "; set MUSTER_PYTHON to the path of another Python"));
}

struct Ended {
  std::string out;
  int status = 0;
};

// Runs a program to its end, with this program's standard error. Passes an interrupt on.
absl::StatusOr<Ended> Run(const std::vector<std::string>& command,
                          const std::function<bool()>& interrupted) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "a pipe cannot be made");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  std::vector<char*> arguments;
  for (const std::string& one : command) arguments.push_back(const_cast<char*>(one.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return NoPackage(command[0], strerror(failed));
  }
  Ended ended;
  bool told = false;
  char buffer[4096];
  while (true) {
    if (!told && interrupted()) {
      kill(child, SIGINT);
      told = true;
    }
    pollfd readable{.fd = ends[0], .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, kBeatMillis) <= 0) continue;
    const ssize_t count = read(ends[0], buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    ended.out.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  while (waitpid(child, &ended.status, 0) < 0 && errno == EINTR) {
  }
  if (told) return absl::CancelledError("interrupted");
  return ended;
}

}  // namespace

absl::StatusOr<std::vector<PackedFile>> PackWithTokenizer(
    const PackOptions& options, const TokenizerOptions& tokenizer,
    const std::function<bool()>& interrupted) {
  ASSIGN_OR_RETURN(const Ended ended, Run(Command(options, tokenizer), interrupted));
  const auto json = nlohmann::json::parse(ended.out, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("error")) {
    const std::string message = json.value("error", "");
    const std::string kind = json.value("kind", "");
    if (kind == "package") return NoPackage(tokenizer.python, message);
    return kind == "argument" ? absl::InvalidArgumentError(message) : absl::UnknownError(message);
  }
  if (!json.is_object() || !json.contains("files")) {
    if (WIFSIGNALED(ended.status)) {
      return absl::UnknownError(absl::StrCat(
          tokenizer.python, " was ended by signal ", WTERMSIG(ended.status), " while it packed",
          WTERMSIG(ended.status) == SIGKILL ? "; perhaps the memory was not enough" : ""));
    }
    return NoPackage(tokenizer.python,
                     absl::StrCat("it ended with exit code ", WEXITSTATUS(ended.status)));
  }
  std::vector<PackedFile> files;
  for (const auto& file : json["files"]) {
    files.push_back({.path = file.value("path", ""),
                     .tokens = file.value("tokens", uint64_t{0}),
                     .dtype = file.value("dtype", ""),
                     .unigram_entropy = file.value("unigram_entropy", 0.0)});
  }
  return files;
}

}  // namespace muster::cli
