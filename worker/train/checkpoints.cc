#include "worker/train/checkpoints.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status.h"
#include "worker/checkpoint/directory.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

std::string NameOf(const std::string& path) { return fs::path(path).filename(); }

// Says whose folder it is.
constexpr char kOwnerFile[] = ".muster-job";

// Makes the folder this job's, unless there are checkpoints of another job in it.
absl::Status Claim(const std::string& folder, const Identity& identity) {
  const std::string path = files::JoinPath(folder, kOwnerFile);
  const std::string owner = absl::StrCat(identity.job, " ", identity.job_instance, "\n");
  const auto found = files::ReadFile(path);
  if (found.ok() && *found == owner) return absl::OkStatus();
  if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
  ASSIGN_OR_RETURN(const auto names, checkpoint::ListCheckpoints(folder));
  if (names.empty()) return files::WriteAtomically(path, owner);
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint.directory: ", files::JoinPath(folder, names[0]),
      " was written by another job of the same id; choose another job id or directory, or move it "
      "away"));
}

}  // namespace

std::string CheckpointFolder(const Identity& identity, const CheckpointConfig& config) {
  return files::JoinPath(config.directory, identity.job);
}

Checkpoints::Checkpoints(const Identity& identity, std::string folder, const std::string& strategy,
                         const std::string& model_kind, comm::Communicator* communicator,
                         EventSink* events)
    : identity_(identity),
      folder_(std::move(folder)),
      events_(events),
      saver_({.directory = folder_,
              .job = identity.job,
              .generation = identity.generation,
              .strategy = strategy,
              .model_kind = model_kind},
             communicator) {}

void Checkpoints::Report(const Event& event) {
  if (identity_.rank == 0) events_->Report(event);
}

absl::StatusOr<std::unique_ptr<Checkpoints>> Checkpoints::Open(const Identity& identity,
                                                               const CheckpointConfig& config,
                                                               const std::string& strategy,
                                                               const std::string& model_kind,
                                                               comm::Communicator* communicator,
                                                               EventSink* events) {
  std::unique_ptr<Checkpoints> checkpoints(new Checkpoints(
      identity, CheckpointFolder(identity, config), strategy, model_kind, communicator, events));
  ASSIGN_OR_RETURN(const absl::Status shared, checkpoints->saver_.CheckSharedDirectory());
  RETURN_IF_ERROR(Annotate(shared, "checkpoint.directory"));
  return checkpoints;
}

absl::StatusOr<Checkpoints::Restored> Checkpoints::Restore(
    const std::vector<std::string>& recorded, const checkpoint::Saver::StateFor& state_for) {
  if (identity_.rank == 0) RETURN_IF_ERROR(Claim(folder_, identity_));
  std::vector<std::string> names;
  for (const std::string& path : recorded) names.push_back(NameOf(path));
  ASSIGN_OR_RETURN(const auto outcome, saver_.Restore(names, state_for));
  for (const auto& bad : outcome.set_aside) {
    Report(CheckpointBad{files::JoinPath(folder_, bad.name), bad.reason});
  }
  if (identity_.rank == 0) RETURN_IF_ERROR(checkpoint::RemoveStale(folder_, names).status());
  if (absl::IsNotFound(outcome.status)) return Restored{};  // none is good: from the start
  RETURN_IF_ERROR(Annotate(outcome.status, "restoring a checkpoint"));
  return Restored{.point = {.step = outcome.manifest.step,
                            .last_command = outcome.manifest.last_command,
                            .epoch = outcome.manifest.epoch,
                            .cursor = outcome.manifest.cursor,
                            .steering = outcome.manifest.steering},
                  .path = files::JoinPath(folder_, outcome.name),
                  .generation = outcome.manifest.generation};
}

absl::StatusOr<Checkpoints::Saved> Checkpoints::Save(const checkpoint::SavePoint& point,
                                                     const checkpoint::State& state) {
  ASSIGN_OR_RETURN(const auto outcome, saver_.Save(point, state));
  Saved saved{.files = outcome.status};
  if (saved.files.ok()) {
    saved.path = files::JoinPath(folder_, outcome.name);
    Report(CheckpointWritten{point.step, saved.path, identity_.generation});
  }
  return saved;
}

}  // namespace muster::train
