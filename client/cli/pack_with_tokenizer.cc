#include "client/cli/pack_with_tokenizer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::cli {
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
      "--tokenizer FILE needs Python with the package of Muster, whose wheel you install "
      "(docs/install.md), and with `tokenizers` (`pip install tokenizers`); ",
      python, ": ", found, "; MUSTER_PYTHON names another Python"));
}

struct Ended {
  std::string out;
  int status = 0;
};

// Runs a program to its end, with this program's standard error. An interrupt is passed on.
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
