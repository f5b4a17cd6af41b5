#include "worker/train/save/checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/manifest/name.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/exchange.h"
#include "worker/train/ranks/failure.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

using checkpoint::Candidate;
using checkpoint::FoundCheckpoint;
using checkpoint::Rejected;

// The name of the file that names the job that owns the folder.
constexpr char kOwnerFile[] = ".muster-job";

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Makes this job the owner of the folder, unless the folder holds checkpoints of another job.
absl::Status Claim(const std::string& folder, const Identity& identity,
                   const std::vector<std::string>& recorded) {
  const std::string path = files::JoinPath(folder, kOwnerFile);
  const std::string owner = absl::StrCat(identity.job, " ", identity.job_instance, "\n");
  const auto found = files::ReadFile(path);
  if (found.ok() && *found == owner) return absl::OkStatus();
  if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
  ASSIGN_OR_RETURN(const auto names, checkpoint::ListCheckpoints(folder));
  // The owner file may have been removed. Then a checkpoint that the coordinator recorded shows
  // that the folder is the job's own.
  const bool own =
      !found.ok() && std::any_of(names.begin(), names.end(),
                                 [&](const std::string& name) { return Contains(recorded, name); });
  if (names.empty() || own) return files::WriteAtomically(path, owner);
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint.directory: ", files::JoinPath(folder, names[0]),
      " was written by another job of the same id; choose another job id or directory, or move it "
      "away"));
}

absl::Status FindFolder(const std::string& folder) {
  std::error_code error;
  const bool there = fs::is_directory(folder, error);
  if (there) return absl::OkStatus();
  if (!error || error == std::errc::no_such_file_or_directory) {
    return absl::NotFoundError(absl::StrCat(folder, ": there is no such directory"));
  }
  return files::ErrnoStatus(error.value(), "inspect", folder);
}

// Returns the error of a rank whose own files are good. Another rank reports the cause.
absl::Status Consequence(const absl::Status& error) { return absl::AbortedError(Message(error)); }

// Returns the error of this rank if only some ranks' nodes are at fault.
absl::Status NodeError(const Identity& identity, const std::vector<int64_t>& at_fault,
                       const absl::Status& error) {
  const bool mine = std::find(at_fault.begin(), at_fault.end(), identity.rank) != at_fault.end();
  if (!mine) return Consequence(error);
  return WithCause(absl::InternalError(
                       absl::StrCat(Message(error), "; is the file system mounted on this node?")),
                   Cause::kNodeFault);
}

Checkpoints::Restored RestoredOf(const manifest::Manifest& manifest, const std::string& path,
                                 const Identity& identity) {
  Checkpoints::Restored restored{.point = {.step = manifest.step,
                                           .last_command = manifest.last_command,
                                           .epoch = manifest.epoch,
                                           .cursor = manifest.cursor,
                                           .sampling = manifest.sampling,
                                           .steering = manifest.steering},
                                 .path = path,
                                 .generation = manifest.generation,
                                 .world_size = manifest.world_size};
  // The command numbers of another job have no meaning in this job's log.
  if (!IsOwn(manifest, identity)) {
    restored.point.last_command = 0;
    restored.point.steering.waiting_commands.clear();
    restored.point.steering.applied.clear();
    // A validation pass of the other job is not due in this job and decides nothing here.
    restored.point.steering.validation_due = false;
    restored.point.steering.validations = {};
    // The rate is in the job file: the job's own rate, or that of the checkpoint
    // (jobfile::Continue).
    restored.point.steering.learning_rate.reset();
  }
  return restored;
}

}  // namespace

std::string CheckpointFolder(const Identity& identity, const CheckpointConfig& config) {
  return files::JoinPath(config.directory, identity.job);
}

bool IsOwn(const manifest::Manifest& manifest, const Identity& identity) {
  return manifest.job == identity.job && manifest.job_instance == identity.job_instance;
}

checkpoint::Epoch EpochOf(const Identity& identity) {
  return {.generation = identity.generation,
          .instance = identity.job_instance,
          .incarnation = identity.incarnation};
}

std::string Checkpoints::PathOf(const std::string& name) const {
  return files::JoinPath(folder_, name);
}

std::vector<std::string> Checkpoints::RecordedNames() const {
  std::vector<std::string> names;
  for (const std::string& path : history_.recorded)
    names.push_back(manifest::NameOfDirectory(path));
  return names;
}

absl::Status Checkpoints::NoneCanBeRead(const std::string& what_was_found) const {
  const std::string none =
      history_.start_from.empty()
          ? absl::StrCat("none of the job's checkpoints can be read in ", folder_)
          : "the checkpoint from which the job was told to continue cannot be read";
  // Every rank returns this cause, because the first rank that reports to the coordinator ends the
  // other ranks.
  return WithCause(absl::FailedPreconditionError(absl::StrCat(none, ": ", what_was_found)),
                   Cause::kCheckpointsUnreadable);
}

absl::Status Checkpoints::CheckFolderIsThere() {
  ASSIGN_OR_RETURN(const auto found,
                   checkpoint::Exchange(*communicator_, checkpoint::ToResult(FindFolder(folder_)),
                                        "checkpoint folder", 0));
  const absl::Status status = checkpoint::Combine(found);
  if (status.ok()) return status;
  const std::vector<int64_t> at_fault = checkpoint::Failed(found);
  if (at_fault.size() < found.size()) return NodeError(identity_, at_fault, status);
  return NoneCanBeRead(Message(found[0].status()));
}

absl::StatusOr<std::unique_ptr<Checkpoints>> Checkpoints::Open(
    const Identity& identity, const CheckpointConfig& config, const CheckpointHistory& history,
    const std::string& strategy, const std::string& model_kind, comm::Communicator* communicator,
    EventSink* events, std::function<absl::Status()> still_mine, files::Disk& disk) {
  std::unique_ptr<Checkpoints> checkpoints(
      new Checkpoints(identity, history,
                      {.directory = CheckpointFolder(identity, config),
                       .job = identity.job,
                       .generation = identity.generation,
                       .strategy = strategy,
                       .model_kind = model_kind},
                      communicator, events, disk));
  checkpoints->saver_.SetStillMine(std::move(still_mine));
  // The file system may not be mounted any more. A new folder in its place would hide the job's
  // checkpoints from the person who mounts it again.
  const bool must_be_there = history.any() && !history.from_scratch && history.start_from.empty();
  if (must_be_there) RETURN_IF_ERROR(checkpoints->CheckFolderIsThere());
  ASSIGN_OR_RETURN(const checkpoint::SharedOutcome shared,
                   checkpoints->saver_.CheckSharedDirectory());
  const absl::Status status = Annotate(shared.status, "checkpoint.directory");
  // The folder passed this check when the job wrote its checkpoints, so a node is at fault.
  if (!status.ok() && history.any()) return NodeError(identity, shared.at_fault, status);
  RETURN_IF_ERROR(status);
  return checkpoints;
}

absl::Status Checkpoints::TakeFolder() {
  RETURN_IF_ERROR(Claim(folder_, identity_, RecordedNames()));
  RETURN_IF_ERROR(checkpoint::BeginEpoch(folder_, EpochOf(identity_)));
  RETURN_IF_ERROR(checkpoint::RemoveLeftovers(folder_, identity_.generation).status());
  std::vector<std::string> retired;
  for (const std::string& path : history_.retired)
    retired.push_back(manifest::NameOfDirectory(path));
  ASSIGN_OR_RETURN(
      found_, checkpoint::FindUnknown(folder_, {RecordedNames(), std::move(retired)}, identity_.job,
                                      identity_.job_instance, identity_.generation));
  for (FoundCheckpoint& one : found_) {
    if (!one.reason.empty()) continue;
    if (history_.from_scratch) one.reason = "the job was told to start again from step 0";
    if (!history_.start_from.empty() && history_.start_from != PathOf(one.name)) {
      one.reason = absl::StrCat("the job was told to continue from ", history_.start_from);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Checkpoints::FindAdoptable() {
  if (identity_.rank == 0) {
    const absl::Status taken = TakeFolder();
    const bool refused = absl::IsFailedPrecondition(taken) || absl::IsAborted(taken);
    if (!taken.ok() && !refused && history_.any()) return NodeError(identity_, {0}, taken);
    RETURN_IF_ERROR(taken);
  }
  checkpoint::Epoch epoch = EpochOf(identity_);
  std::vector<std::string> names = {epoch.incarnation};
  for (auto one = found_.rbegin(); one != found_.rend(); ++one) {
    if (one->reason.empty()) names.push_back(one->name);
  }
  ASSIGN_OR_RETURN(
      const std::string told,
      checkpoint::TellAll(*communicator_, absl::StrJoin(names, "/"), "checkpoints found"));
  names = absl::StrSplit(told, '/');
  epoch.incarnation = names[0];  // of rank 0, which began the epoch
  saver_.SetEpoch(epoch);
  names.erase(names.begin());
  return names;
}

std::vector<Candidate> Checkpoints::Candidates(const std::vector<std::string>& adoptable) const {
  if (history_.from_scratch) return {};
  if (!history_.start_from.empty()) {
    return {{.name = history_.start_from, .recorded = false, .own = false}};
  }
  std::vector<Candidate> candidates;
  for (const std::string& name : adoptable) candidates.push_back({.name = name, .recorded = false});
  for (const std::string& name : RecordedNames()) candidates.push_back({.name = name});
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return checkpoint::WrittenBefore(b.name, a.name);
                   });
  return candidates;
}

void Checkpoints::ReportFound(const checkpoint::RestoreOutcome& outcome) {
  if (identity_.rank != 0) return;
  CheckpointsFound told;
  const std::vector<std::string> recorded = RecordedNames();
  for (const Rejected& rejected : outcome.rejected) {
    if (!Contains(recorded, rejected.name)) continue;
    if (rejected.damaged) {
      events_->Report(CheckpointBad{PathOf(rejected.name), rejected.reason});
    } else if (const auto name = manifest::ParseFinalName(rejected.name); name.has_value()) {
      told.found.push_back({.path = PathOf(rejected.name),
                            .step = name->step,
                            .generation = name->generation,
                            .reason = absl::StrCat("it could not be read: ", rejected.reason)});
    }
  }
  for (FoundCheckpoint& one : found_) {
    const auto rejected = std::find_if(outcome.rejected.begin(), outcome.rejected.end(),
                                       [&](const Rejected& r) { return r.name == one.name; });
    if (rejected != outcome.rejected.end()) {
      one.reason = rejected->reason;
    } else if (one.reason.empty() && one.name != outcome.name) {
      // Every checkpoint that counts is verified, even if it is not restored now.
      events_->Progress(0, "", "verifying a checkpoint that was found");
      one.reason = Message(manifest::Verify(PathOf(one.name)).status());
    }
    told.found.push_back({.path = PathOf(one.name),
                          .step = one.step,
                          .generation = one.generation,
                          .reason = one.reason});
  }
  if (!told.found.empty()) events_->Report(told);
}

absl::StatusOr<Checkpoints::Restored> Checkpoints::Restore(
    const checkpoint::Saver::StateFor& state_for) {
  ASSIGN_OR_RETURN(const std::vector<std::string> adoptable, FindAdoptable());
  ASSIGN_OR_RETURN(const auto outcome, saver_.Restore(Candidates(adoptable), state_for));
  if (!outcome.at_fault.empty()) return NodeError(identity_, outcome.at_fault, outcome.status);
  ReportFound(outcome);
  if (absl::IsNotFound(outcome.status)) {
    const bool expected = history_.any() || !history_.start_from.empty();
    if (history_.from_scratch || !expected) return Restored{};
    Problems reasons;
    for (const Rejected& rejected : outcome.rejected) {
      reasons.Add(
          absl::StrCat(rejected.name, rejected.damaged ? " is damaged: " : ": ", rejected.reason));
    }
    return NoneCanBeRead(reasons.count() > 0 ? reasons.Text()
                                             : "all recorded checkpoints were damaged");
  }
  absl::Status status = Annotate(outcome.status, "restoring a checkpoint");
  if (!status.ok() && !history_.start_from.empty())
    status = WithCause(status, Cause::kStartDoesNotFit);
  RETURN_IF_ERROR(status);
  return RestoredOf(outcome.manifest, PathOf(outcome.name), identity_);
}

absl::StatusOr<Checkpoints::Restored> Checkpoints::RestoreFrom(
    const std::string& directory, const Identity& identity, comm::Communicator* communicator,
    const checkpoint::Saver::StateFor& state_for) {
  checkpoint::Saver reader({.directory = "", .job = identity.job}, communicator);
  const Candidate candidate{.name = directory, .recorded = false, .own = false};
  ASSIGN_OR_RETURN(const auto outcome,
                   reader.Restore({candidate}, state_for, checkpoint::Surplus::kIgnore));
  if (!outcome.at_fault.empty()) return NodeError(identity, outcome.at_fault, outcome.status);
  if (!outcome.rejected.empty()) {
    const Rejected& rejected = outcome.rejected.front();
    return absl::NotFoundError(absl::StrCat(
        directory, rejected.damaged ? " is damaged: " : " cannot be read: ", rejected.reason));
  }
  RETURN_IF_ERROR(outcome.status);
  return RestoredOf(outcome.manifest, directory, identity);
}

absl::StatusOr<Checkpoints::Saved> Checkpoints::Save(const checkpoint::SavePoint& point,
                                                     const checkpoint::State& state,
                                                     const checkpoint::ModelRecords& records) {
  ASSIGN_OR_RETURN(const auto outcome, saver_.Save(point, state, records));
  Saved saved{.files = outcome.status, .path = ""};
  if (saved.files.ok()) saved.path = PathOf(outcome.name);
  for (const manifest::FileRecord& file : outcome.manifest.files) saved.bytes += file.size;
  return saved;
}

}  // namespace muster::train
