#include "worker/agent/identity.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
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

constexpr char kSystem[] = "/var/lib/muster";
constexpr char kFile[] = "agent-id";

// Makes the private directory. The names are those of the agent's files in it, besides its folders.
absl::Status MakeDirectory(const std::string& directory) {
  return files::MakePrivateDirectory(directory, {kFile, "lock", "quarantine"});
}

}  // namespace

std::string DefaultStateDirectory(const std::string& node, const std::string& coordinator,
                                  const std::map<std::string, std::string>& environment,
                                  const std::function<bool(const std::string& directory)>& has_id) {
  const auto value = [&](const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  std::string name = absl::StrCat("agent-", node, "-", coordinator);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == ':'; }, '-');

  std::string of_user = value("XDG_STATE_HOME");
  if (of_user.empty() && !value("HOME").empty()) {
    of_user = files::JoinPath(value("HOME"), ".local/state");
  }
  if (!of_user.empty()) of_user = files::JoinPath(of_user, files::JoinPath("muster", name));

  // systemd separates several directories by colons.
  const std::string all = value("STATE_DIRECTORY");
  const std::string of_unit = all.substr(0, all.find(':'));
  if (!of_unit.empty() && (of_user.empty() || !has_id(of_user))) {
    return files::JoinPath(of_unit, name);
  }
  return of_user.empty() ? files::JoinPath(kSystem, name) : of_user;
}

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
