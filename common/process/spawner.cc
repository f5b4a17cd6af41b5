#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <condition_variable>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/process.h"
#include "common/status/status.h"

namespace muster::process {
namespace {

// The message of the child to its parent if it could not start the new program.
struct ChildError {
  const char* step;  // A literal: the same address in parent and child.
  int error;
};

struct Pipe {
  Fd read;
  Fd write;
};

absl::Status SystemError(const char* what, int error) {
  const std::string message = absl::StrCat(what, ": ", strerror(error));
  if (error == ENOENT) return absl::NotFoundError(message);
  if (error == EACCES) return absl::PermissionDeniedError(message);
  return absl::InternalError(message);
}

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError("pipe", errno);
  return Pipe{.read = Fd(ends[0]), .write = Fd(ends[1])};
}

// The environment of the child, as "NAME=value" lines.
std::vector<std::string> Environment(const SpawnOptions& options) {
  std::vector<std::string> lines;
  for (char** line = environ; *line != nullptr; ++line) {
    const std::string text = *line;
    const std::string name = text.substr(0, text.find('='));
    if (options.environment.contains(name)) continue;
    if (options.inherits == nullptr || options.inherits(name)) lines.push_back(text);
  }
  for (const auto& [name, value] : options.environment) {
    lines.push_back(absl::StrCat(name, "=", value));
  }
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// All data that the child needs, made before the fork. After the fork only async-signal-safe calls
// are allowed, because another thread may have held any lock (also malloc's) at the moment of the
// fork.
struct ChildPlan {
  std::vector<char*> argv;
  std::vector<char*> environment;
  Grouping grouping;
  int parent_death_signal;
  sigset_t blocked;
  pid_t parent;
  int input;
  int output;  // -1: inherit.
  int errors;
};

[[noreturn]] void Abandon(const ChildPlan& plan, const char* step) {
  const ChildError error = {.step = step, .error = errno};
  // A write below PIPE_BUF is atomic. A parent that is gone needs no message.
  if (write(plan.errors, &error, sizeof(error)) < 0) _exit(126);
  _exit(127);
}

bool Ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  if (plan.grouping == Grouping::kOwnSession) {
    if (setsid() < 0) Abandon(plan, "setsid");
  } else if (setpgid(0, 0) != 0) {
    Abandon(plan, "setpgid");
  }
  if (plan.parent_death_signal != 0) {
    if (prctl(PR_SET_PDEATHSIG, plan.parent_death_signal) != 0) Abandon(plan, "prctl");
    // The parent may have died before the line above.
    if (getppid() != plan.parent) _exit(127);
  }
  // Resets the signals: servers ignore SIGPIPE, and a child inherits ignored signals.
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal == SIGHUP && Ignored(signal)) continue;
    ::signal(signal, SIG_DFL);
  }
  sigprocmask(SIG_SETMASK, &plan.blocked, nullptr);

  if (dup2(plan.input, STDIN_FILENO) < 0) Abandon(plan, "dup2");
  if (plan.output >= 0 &&
      (dup2(plan.output, STDOUT_FILENO) < 0 || dup2(plan.output, STDERR_FILENO) < 0)) {
    Abandon(plan, "dup2");
  }
  if (close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0) Abandon(plan, "close_range");
  execve(plan.argv[0], plan.argv.data(), plan.environment.data());
  Abandon(plan, plan.argv[0]);
}

sigset_t ToSet(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

void Reap(pid_t pid) {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// Returns the error from the child. `step` is a literal, at the same address in the child's copy of
// the memory.
absl::Status AwaitExec(Fd errors) {
  ChildError error;
  ssize_t count;
  do {
    count = read(errors.get(), &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  if (count == 0) return absl::OkStatus();  // Closed by exec.
  if (count != sizeof(error)) return absl::InternalError("the child ended before exec");
  return SystemError(error.step, error.error);
}

struct Child {
  pid_t pid;
  Fd pidfd;
  Fd output;
};

absl::StatusOr<Child> Fork(const SpawnOptions& options) {
  if (options.argv.empty()) return absl::InvalidArgumentError("no program to start: argv is empty");
  std::vector<std::string> argv = options.argv;
  std::vector<std::string> environment = Environment(options);
  const Fd input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (input.get() < 0) return SystemError("/dev/null", errno);
  ASSIGN_OR_RETURN(Pipe errors, MakePipe());
  Pipe output;
  if (options.output == Output::kPipe) {
    ASSIGN_OR_RETURN(output, MakePipe());
    // Changes only the parent's end: a program does not expect a non-blocking stdout.
    if (fcntl(output.read.get(), F_SETFL, O_NONBLOCK) != 0) return SystemError("fcntl", errno);
  }
  const ChildPlan plan = {.argv = Pointers(argv),
                          .environment = Pointers(environment),
                          .grouping = options.grouping,
                          .parent_death_signal = options.parent_death_signal,
                          .blocked = ToSet(options.blocked),
                          .parent = getpid(),
                          .input = input.get(),
                          .output = output.write.get(),
                          .errors = errors.write.get()};
  const pid_t pid = fork();
  if (pid < 0) return SystemError("fork", errno);
  if (pid == 0) RunChild(plan);

  errors.write = Fd();
  if (absl::Status executed = AwaitExec(std::move(errors.read)); !executed.ok()) {
    Reap(pid);
    return executed;
  }
  // Called by number: glibc 2.36 declares pidfd_open without C linkage.
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd.get() < 0) {
    const int error = errno;
    kill(-pid, SIGKILL);
    Reap(pid);
    return SystemError("pidfd_open", error);
  }
  return Child{.pid = pid, .pidfd = std::move(pidfd), .output = std::move(output.read)};
}

}  // namespace

struct Spawner::Thread {
  struct Request {
    const SpawnOptions* options;
    std::promise<absl::StatusOr<Child>> answer;
  };

  void Run() {
    while (true) {
      Request* request;
      {
        absl::MutexLock lock(&mutex);
        mutex.Await(absl::Condition(
            +[](Thread* thread) ABSL_EXCLUSIVE_LOCKS_REQUIRED(thread->mutex) {
              return thread->stopping || !thread->requests.empty();
            },
            this));
        if (requests.empty()) return;
        request = requests.back();
        requests.pop_back();
      }
      request->answer.set_value(Fork(*request->options));
    }
  }

  absl::Mutex mutex;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::vector<Request*> requests ABSL_GUARDED_BY(mutex);
  std::thread thread;
};

Spawner::Spawner() : thread_(std::make_unique<Thread>()) {
  thread_->thread = std::thread([thread = thread_.get()] { thread->Run(); });
}

Spawner::~Spawner() {
  {
    absl::MutexLock lock(&thread_->mutex);
    thread_->stopping = true;
  }
  thread_->thread.join();
}

absl::StatusOr<std::unique_ptr<Process>> Spawner::Spawn(const SpawnOptions& options) {
  Thread::Request request{.options = &options, .answer = {}};
  std::future<absl::StatusOr<Child>> answer = request.answer.get_future();
  {
    absl::MutexLock lock(&thread_->mutex);
    thread_->requests.push_back(&request);
  }
  ASSIGN_OR_RETURN(Child child, answer.get());
  return std::unique_ptr<Process>(
      new Process(child.pid, std::move(child.pidfd), std::move(child.output)));
}

}  // namespace muster::process
