#include "coordinator/service/secrets.h"

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/secret/secret.h"
#include "common/status/status.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

constexpr char kFile[] = "secret";

}  // namespace

Secrets::Secrets() : key_(secret::Random()) {}

absl::StatusOr<Secrets> Secrets::Open(const std::string& state_directory) {
  const std::string path = files::JoinPath(state_directory, kFile);
  const auto found = files::ReadFile(path);
  if (absl::IsNotFound(found.status())) {
    std::string key = secret::Random();
    RETURN_IF_ERROR(files::WritePrivately(path, key));
    return Secrets(std::move(key));
  }
  RETURN_IF_ERROR(found.status());
  if (found->size() != secret::kBytes) {
    return absl::DataLossError(absl::StrCat(
        path, " has ", found->size(), " bytes; expected ", secret::kBytes,
        ". Remove it: musterd makes a new one, and the workers that run now are started again"));
  }
  return Secrets(*found);
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
