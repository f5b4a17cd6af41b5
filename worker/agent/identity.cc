#include "worker/agent/identity.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/ids/ids.h"
#include "common/status/status.h"

namespace muster::agent {
namespace {

constexpr char kFile[] = "agent-id";

// With the files that this agent has in it besides its folders.
absl::Status MakeDirectory(const std::string& directory) {
  return files::MakePrivateDirectory(directory, {kFile, "lock", "quarantine"});
}

}  // namespace

bool Identity::IsIn(const std::string& directory) {
  return access(files::JoinPath(directory, kFile).c_str(), F_OK) == 0;
}

absl::StatusOr<std::unique_ptr<Identity>> Identity::Take(const std::string& directory) {
  std::unique_ptr<Identity> self(new Identity());
  if (directory.empty()) return self;
  const auto cannot = [&](const std::string& why) {
    return absl::UnavailableError(absl::StrCat("the agent's state directory ", directory,
                                               " cannot be used: ", why,
                                               "; --state names another"));
  };
  if (const absl::Status made = MakeDirectory(directory); !made.ok()) {
    return cannot(std::string(made.message()));
  }
  const std::string lock = files::JoinPath(directory, "lock");
  self->lock_ = process::Fd(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (self->lock_.get() < 0) return cannot(absl::StrCat(lock, ": ", strerror(errno)));
  if (flock(self->lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another agent uses the state directory ", directory,
                     ": a node has one agent; stop that one, or give this one another --node"));
  }
  const std::string path = files::JoinPath(directory, kFile);
  const auto kept = files::ReadFile(path);
  if (kept.ok()) self->id_ = std::string(absl::StripAsciiWhitespace(*kept));
  if (!self->id_.empty()) return self;
  if (!kept.ok() && !absl::IsNotFound(kept.status())) {
    return cannot(std::string(kept.status().message()));
  }
  self->id_ = NewUuid();
  if (const absl::Status written = files::WritePrivately(path, self->id_ + "\n"); !written.ok()) {
    return cannot(std::string(written.message()));
  }
  return self;
}

}  // namespace muster::agent
