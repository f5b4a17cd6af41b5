// The weights at the end of the job: written under a temporary name, which no other process has,
// and put in their place once the coordinator has said that this generation is still the current
// one.
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
#include "worker/train/session_impl.h"

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

std::string SessionImpl::TemporaryExport() const {
  return exports::TemporaryPath(job_.weights_export->path, identity_.job, identity_.generation,
                                identity_.incarnation);
}

absl::Status SessionImpl::PrepareExport() const {
  if (!job_.weights_export.has_value() || !leader()) return absl::OkStatus();
  const auto& [path, overwrite, job_name] = *job_.weights_export;
  const auto check = [&]() -> absl::Status {
    RETURN_IF_ERROR(exports::CheckTarget(path, job_name, overwrite));
    RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(path)));
    return Probe(TemporaryExport());
  };
  return Annotate(check(), "export.path");
}

absl::StatusOr<SessionImpl::LeadersPart> SessionImpl::TellLeadersPart(const absl::Status& mine,
                                                                      const char* what) {
  ASSIGN_OR_RETURN(const auto results,
                   checkpoint::Exchange(*parts_.control, checkpoint::ToResult(mine), what, step_));
  return LeadersPart{results[0].status()};
}

absl::StatusOr<SessionImpl::LeadersPart> SessionImpl::WriteExport(const std::string& temporary) {
  const size_t parameters = model_->Parameters().size();
  size_t gathered = 0;
  const auto gather = [&](size_t parameter) {
    gathered = parameter + 1;
    return strategy() == nullptr ? absl::OkStatus() : strategy()->GatherParameters({parameter});
  };
  absl::Status files;
  absl::Status communication;
  if (leader()) {
    const auto before_read = [&](size_t parameter) {
      communication = gather(parameter);
      return communication;
    };
    const safetensors::Metadata metadata =
        exports::MetadataOf(job_.weights_export->job_name, identity_.job);
    files = checkpoint::WriteWeights(temporary, model_->Parameters(), model_->Buffers(), metadata,
                                     before_read);
    RETURN_IF_ERROR(communication);
  }
  // Also where the file failed half way: the others gather to the end.
  while (gathered < parameters) RETURN_IF_ERROR(gather(gathered));
  if (strategy() != nullptr) strategy()->ReleaseParameters();
  return TellLeadersPart(files, "export written");
}

absl::StatusOr<SessionImpl::LeadersPart> SessionImpl::AwaitGrant() {
  if (leader() && parts_.export_gate != nullptr) {
    Report(ExportReady{TemporaryExport(), job_.weights_export->path});
  }
  absl::Duration waited = absl::ZeroDuration();
  while (true) {
    absl::Status word;
    if (leader() && parts_.export_gate != nullptr &&
        !parts_.export_gate->WaitForGrant(job_.weights_export->path, kGrantBeat)) {
      waited += kGrantBeat;
      word = absl::UnavailableError("not yet");
      if (waited >= parts_.export_gate->patience()) {
        word = absl::DeadlineExceededError(absl::StrCat(
            "the weights are in ", TemporaryExport(), ": the coordinator did not say within ",
            absl::FormatDuration(parts_.export_gate->patience()),
            " that they may take their place"));
      }
    }
    ASSIGN_OR_RETURN(const LeadersPart told, TellLeadersPart(word, "export granted"));
    if (!absl::IsUnavailable(told.status)) return told;
    Progress("waits for the coordinator's leave to put the weights in their place");
  }
}

void SessionImpl::RemoveOlderExports() const {
  // Not before this generation's weights are in their place: they may be all that is left of a job
  // that failed at its export.
  const auto removed =
      exports::RemoveStale(job_.weights_export->path, identity_.job, identity_.generation);
  if (!removed.ok())
    return spdlog::warn("what older generations left stays: {}", Message(removed.status()));
  for (const std::string& name : *removed) {
    spdlog::info("removed {}, which an older generation of this job left", name);
  }
}

absl::Status SessionImpl::Export() {
  if (!job_.weights_export.has_value()) return absl::OkStatus();
  const std::string& path = job_.weights_export->path;
  const std::string temporary = TemporaryExport();
  Progress("exporting the weights");
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(finite_->Check(step_, strategy()));
  for (int attempt = 1;; ++attempt) {
    ASSIGN_OR_RETURN(const LeadersPart written, WriteExport(temporary));
    if (written.status.ok()) break;
    if (!TryAgain(written.status, attempt, "exporting the weights")) return Failed(written.status);
  }
  ASSIGN_OR_RETURN(const LeadersPart granted, AwaitGrant());
  if (!granted.status.ok()) return Failed(granted.status);
  absl::Status placed;
  if (leader()) {
    // Whose lease is over has failed at nothing: the next generation exports.
    RETURN_IF_ERROR(StillMine());
    placed = Place(*job_.weights_export, temporary);
    if (placed.ok()) placed = checkpoint::WriteConfig(path, *model_);
  }
  ASSIGN_OR_RETURN(const LeadersPart told, TellLeadersPart(placed, "export placed"));
  if (!told.status.ok()) return Failed(told.status);
  if (leader()) RemoveOlderExports();
  Report(Exported{path});
  return CallNow().status();  // nobody is done before the weights are there
}

}  // namespace muster::train
