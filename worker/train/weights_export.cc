#include "worker/train/weights_export.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/exports/target.h"
#include "common/exports/temporary.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/weights.h"
#include "worker/train/failure.h"

namespace muster::train {
namespace {

// Between two rounds in which all ranks ask whether rank 0 has leave: shorter than any timeout of a
// collective.
constexpr absl::Duration kGrantBeat = absl::Seconds(1);

// That a file of this name can be made there. A full disk says nothing: it may be another one at
// the end.
absl::Status Probe(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return errno == ENOSPC ? absl::OkStatus() : files::ErrnoStatus(errno, "create", path);
  close(fd);
  unlink(path.c_str());
  return absl::OkStatus();
}

// Gives the weights their name. Nobody else's file is lost, even where it came during the training.
absl::Status Place(const ExportConfig& config, const std::string& temporary) {
  absl::Status status = exports::CheckTarget(config.path, config.job_name, config.overwrite);
  if (status.ok()) status = files::RenameDurably(temporary, config.path);
  if (status.ok()) return status;
  // First, because long texts are cut on their way to the other ranks.
  return absl::Status(status.code(),
                      absl::StrCat("the weights are in ", temporary, ": ", status.message()));
}

absl::Status Failed(const absl::Status& files) {
  return WithCause(Annotate(files, "export.path"), Cause::kFinalSaveFailed);
}

}  // namespace

std::string WeightsExport::Temporary() const {
  return exports::TemporaryPath(parts_.config.path, parts_.identity.job, parts_.identity.generation,
                                parts_.identity.incarnation);
}

absl::Status WeightsExport::Prepare() const {
  if (!parts_.reports->leader()) return absl::OkStatus();
  const auto& [path, overwrite, job_name] = parts_.config;
  const auto check = [&]() -> absl::Status {
    RETURN_IF_ERROR(exports::CheckTarget(path, job_name, overwrite));
    RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(path)));
    return Probe(Temporary());
  };
  return Annotate(check(), "export.path");
}

absl::StatusOr<WeightsExport::LeadersPart> WeightsExport::TellLeadersPart(const absl::Status& mine,
                                                                          const char* what) const {
  ASSIGN_OR_RETURN(const auto results,
                   checkpoint::Exchange(*parts_.control, checkpoint::ToResult(mine), what,
                                        parts_.standing->step));
  return LeadersPart{results[0].status()};
}

absl::StatusOr<WeightsExport::LeadersPart> WeightsExport::WriteTemporary(
    const models::Model& model, parallel::Strategy* strategy) const {
  const size_t parameters = model.Parameters().size();
  size_t gathered = 0;
  const auto gather = [&](size_t parameter) {
    gathered = parameter + 1;
    return strategy == nullptr ? absl::OkStatus() : strategy->GatherParameters({parameter});
  };
  absl::Status files;
  absl::Status communication;
  if (parts_.reports->leader()) {
    const auto before_read = [&](size_t parameter) {
      communication = gather(parameter);
      return communication;
    };
    const safetensors::Metadata metadata =
        exports::MetadataOf(parts_.config.job_name, parts_.identity.job);
    files = checkpoint::WriteWeights(Temporary(), model.Parameters(), model.Buffers(), metadata,
                                     before_read);
    RETURN_IF_ERROR(communication);
  }
  // Also where the file failed half way: the others gather to the end.
  while (gathered < parameters) RETURN_IF_ERROR(gather(gathered));
  if (strategy != nullptr) strategy->ReleaseParameters();
  return TellLeadersPart(files, "export written");
}

absl::StatusOr<WeightsExport::LeadersPart> WeightsExport::AwaitGrant() const {
  const bool asks = parts_.reports->leader() && parts_.gate != nullptr;
  const std::string& path = parts_.config.path;
  if (asks) parts_.reports->Report(ExportReady{Temporary(), path});
  absl::Duration waited = absl::ZeroDuration();
  while (true) {
    absl::Status word;
    if (asks && !parts_.gate->WaitForGrant(path, kGrantBeat)) {
      waited += kGrantBeat;
      word = absl::UnavailableError("not yet");
      if (waited >= parts_.gate->patience()) {
        word = absl::DeadlineExceededError(absl::StrCat(
            "the weights are in ", Temporary(), ": the coordinator did not say within ",
            absl::FormatDuration(parts_.gate->patience()), " that they may take their place"));
      }
    }
    ASSIGN_OR_RETURN(const LeadersPart told, TellLeadersPart(word, "export granted"));
    if (!absl::IsUnavailable(told.status)) return told;
    parts_.reports->Progress("waits for the coordinator's leave to put the weights in their place");
  }
}

void WeightsExport::RemoveOlder() const {
  // Not before this generation's weights are in their place: they may be all that is left of a job
  // that failed at its export.
  const auto removed =
      exports::RemoveStale(parts_.config.path, parts_.identity.job, parts_.identity.generation);
  if (!removed.ok())
    return spdlog::warn("what older generations left stays: {}", Message(removed.status()));
  for (const std::string& name : *removed) {
    spdlog::info("removed {}, which an older generation of this job left", name);
  }
}

absl::Status WeightsExport::Write(const models::Model& model, parallel::Strategy* strategy) const {
  for (int attempt = 1;; ++attempt) {
    ASSIGN_OR_RETURN(const LeadersPart written, WriteTemporary(model, strategy));
    if (written.status.ok()) break;
    if (!parts_.attempts->TryAgain(written.status, attempt, "exporting the weights")) {
      return Failed(written.status);
    }
  }
  ASSIGN_OR_RETURN(const LeadersPart granted, AwaitGrant());
  if (!granted.status.ok()) return Failed(granted.status);
  absl::Status placed;
  if (parts_.reports->leader()) {
    // Whose lease is over has failed at nothing: the next generation exports.
    if (parts_.lease != nullptr) RETURN_IF_ERROR(parts_.lease->StillMine());
    placed = Place(parts_.config, Temporary());
    if (placed.ok()) placed = checkpoint::WriteConfig(parts_.config.path, model);
  }
  ASSIGN_OR_RETURN(const LeadersPart told, TellLeadersPart(placed, "export placed"));
  if (!told.status.ok()) return Failed(told.status);
  if (parts_.reports->leader()) RemoveOlder();
  parts_.reports->Report(Exported{parts_.config.path});
  return absl::OkStatus();
}

}  // namespace muster::train
