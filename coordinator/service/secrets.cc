#include "coordinator/service/secrets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/secret/secret.h"
#include "common/status/status.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

constexpr char kFile[] = "secret";
constexpr char kRemoveIt[] =
    ". Remove it: musterd makes a new one, and the workers that run now are started again";

// Makes sure that only this user can know the contents. NOT_FOUND if there is no file.
absl::Status MakePrivate(const std::string& path) {
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0) return files::ErrnoStatus(errno, "look at", path);
  if (!S_ISREG(found.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no regular file", kRemoveIt));
  }
  if (found.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(path, " belongs to the user ", found.st_uid,
                                                      ", and this process runs as ", geteuid(),
                                                      kRemoveIt));
  }
  if ((found.st_mode & 07777) == 0600 || chmod(path.c_str(), 0600) == 0) return absl::OkStatus();
  return files::ErrnoStatus(errno, "set the permissions of", path);
}

}  // namespace

Secrets::Secrets() : key_(secret::Random()) {}

absl::StatusOr<Secrets> Secrets::Open(const std::string& state_directory) {
  const std::string path = files::JoinPath(state_directory, kFile);
  if (const absl::Status there = MakePrivate(path); absl::IsNotFound(there)) {
    std::string key = secret::Random();
    RETURN_IF_ERROR(files::WritePrivately(path, key));
    return Secrets(std::move(key));
  } else {
    RETURN_IF_ERROR(there);
  }
  ASSIGN_OR_RETURN(std::string key, files::ReadFile(path));
  if (key.size() != secret::kBytes) {
    return absl::DataLossError(
        absl::StrCat(path, " has ", key.size(), " bytes; expected ", secret::kBytes, kRemoveIt));
  }
  return Secrets(std::move(key));
}

std::string Secrets::OfProcess(const cluster::WorkerId& worker) const {
  return secret::Mac(key_, {"process", worker.job, absl::StrCat(worker.generation),
                            absl::StrCat(worker.rank), worker.incarnation});
}

std::string Secrets::OfGeneration(const cluster::WorkerId& worker) const {
  return secret::Mac(key_, {"generation", worker.job, absl::StrCat(worker.generation)});
}

absl::Status Secrets::Check(const cluster::WorkerId& worker, const std::string& secret,
                            bool needed) const {
  if (secret.empty() && !needed) return absl::OkStatus();
  if (secret::Equal(secret, OfProcess(worker))) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kPermissionDenied, "WRONG_SECRET",
      absl::StrCat("rank ", worker.rank, " of job ", worker.job, ", generation ", worker.generation,
                   ": the process gave ", secret.empty() ? "no secret" : "another secret",
                   "; expected the one that its agent got for it"));
}

}  // namespace muster::service
