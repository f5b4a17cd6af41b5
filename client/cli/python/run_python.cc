#include "client/cli/python/run_python.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

constexpr int kBeatMillis = 100;

// The program cannot run at all.
absl::Status NoPackage(const std::string& python, const std::string& packages,
                       const std::string& found) {
  return absl::FailedPreconditionError(absl::StrCat(
      "this needs a Python with the packages `muster` (install its wheel, docs/how-to/install.md) "
      "and ",
      packages, " (`pip install ", packages, "`); ", python, " cannot be used: ", found,
      "; set MUSTER_PYTHON to the path of another Python"));
}

struct Ended {
  std::string out;
  int status = 0;
};

// Runs a program to its end. NOT_FOUND: it cannot be started.
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
    return absl::NotFoundError(strerror(failed));
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

absl::StatusOr<nlohmann::json> RunPython(const Console& console, const PythonProgram& program,
                                         const std::function<bool()>& interrupted) {
  const std::string named = console.environment("MUSTER_PYTHON");
  const std::string python = named.empty() ? "python3" : named;
  std::vector<std::string> command = {python, "-m", program.module};
  command.insert(command.end(), program.arguments.begin(), program.arguments.end());
  const absl::StatusOr<Ended> ended = Run(command, interrupted);
  if (absl::IsNotFound(ended.status())) {
    return NoPackage(python, program.packages, Message(ended.status()));
  }
  RETURN_IF_ERROR(ended.status());
  auto json = nlohmann::json::parse(ended->out, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    if (WIFEXITED(ended->status) && WEXITSTATUS(ended->status) == 130) {
      return absl::CancelledError("interrupted");
    }
    if (WIFSIGNALED(ended->status)) {
      return absl::UnknownError(absl::StrCat(
          python, " was ended by signal ", WTERMSIG(ended->status), " while it ran ",
          program.module,
          WTERMSIG(ended->status) == SIGKILL ? "; perhaps the memory was not enough" : ""));
    }
    return NoPackage(python, program.packages,
                     absl::StrCat("it ended with exit code ", WEXITSTATUS(ended->status)));
  }
  if (!json.contains("error")) return json;
  const std::string message = json.value("error", "");
  const std::string kind = json.value("kind", "");
  if (kind == "package") return NoPackage(python, program.packages, message);
  return kind == "argument" ? absl::InvalidArgumentError(message) : absl::UnknownError(message);
}

}  // namespace muster::cli
