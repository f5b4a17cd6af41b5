#include "worker/checkpoint/saver.h"

#include <filesystem>
#include <random>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/shard.h"

namespace muster::checkpoint {
namespace {

PartResult ToResult(const absl::Status& status) {
  if (!status.ok()) return status;
  return manifest::FileRecord{};
}

// What all ranks must agree on: items, and who writes what.
std::string Hash(const std::vector<manifest::Piece>& pieces) {
  std::string text;
  for (const manifest::Piece& piece : pieces) {
    absl::StrAppend(&text, piece.slot, "/", piece.parameter, " ", piece.dtype, " ", piece.begin, " ", piece.end, " ",
                    piece.file);
    for (const int64_t size : piece.shape) absl::StrAppend(&text, " ", size);
    absl::StrAppend(&text, "\n");
  }
  return files::HashBytes(text.data(), text.size());
}

}  // namespace

Saver::Saver(SaverOptions options, comm::Communicator* communicator, files::Disk& disk)
    : options_(std::move(options)), communicator_(communicator), disk_(disk) {}

absl::StatusOr<absl::Status> Saver::CheckSharedDirectory() {
  const bool first = communicator_->rank() == 0;
  const at::Tensor nonce = at::full({1}, static_cast<int64_t>(std::random_device()()), at::kLong);
  RETURN_IF_ERROR(communicator_->Broadcast(nonce, 0, {"checkpoint nonce", 0})->Wait());
  const uint64_t value = static_cast<uint64_t>(nonce.item<int64_t>());

  const absl::Status written = first ? WriteNonce(options_.directory, value) : absl::OkStatus();
  ASSIGN_OR_RETURN(const auto after_writing,
                   Exchange(*communicator_, ToResult(written), "checkpoint nonce written", 0));
  absl::Status outcome = Combine(after_writing);
  if (outcome.ok()) {
    ASSIGN_OR_RETURN(const auto after_looking,
                     Exchange(*communicator_, ToResult(CheckNonce(options_.directory, value)),
                              "checkpoint nonce seen", 0));
    outcome = Combine(after_looking);
    if (!outcome.ok()) {
      outcome = absl::FailedPreconditionError(
          absl::StrCat("checkpoint directory ", options_.directory,
                       " is not the one that rank 0 sees: ", outcome.message()));
    }
  }
  if (first) RemoveNonce(options_.directory, value);
  return outcome;
}

PartResult Saver::CheckPlan(const State& state) const {
  RETURN_IF_ERROR(CheckWritable(state, communicator_->rank(), communicator_->world_size()));
  return manifest::FileRecord{"", 0, Hash(Pieces(state, Parts(state)))};
}

PartResult Saver::WritePart(const std::string& temporary, const std::vector<layout::Range>& part,
                            const State& state) {
  RETURN_IF_ERROR(files::CreateDirectories(temporary));
  return WriteShard(temporary, communicator_->rank(), part, state, disk_);
}

absl::StatusOr<SaveOutcome> Saver::Save(const SavePoint& point, const State& state) {
  if (last_point_ == point) return last_outcome_;
  SaveOutcome outcome;
  outcome.name = FinalName(point.step, options_.generation);
  if (last_point_.has_value() && last_point_->step == point.step) {
    outcome.status = absl::AlreadyExistsError(absl::StrCat(
        outcome.name, " was saved after command ", last_point_->last_command, " already"));
    return outcome;
  }
  const std::string final = files::JoinPath(options_.directory, outcome.name);
  const std::string temporary =
      files::JoinPath(options_.directory, TemporaryName(point.step, options_.generation));

  ASSIGN_OR_RETURN(auto plans,
                   Exchange(*communicator_, CheckPlan(state), "checkpoint plan", point.step));
  for (PartResult& plan : plans) {
    if (plan.ok() && plans[0].ok() && plan->hash != plans[0]->hash) {
      plan = absl::InvalidArgumentError("its items, or who writes what of them, are not those of rank 0");
    }
  }
  outcome.status = Annotate(Combine(plans), absl::StrCat("checkpoint ", outcome.name));
  if (!outcome.status.ok()) return outcome;

  const std::vector<std::vector<layout::Range>> shards = Parts(state);
  ASSIGN_OR_RETURN(
      const auto parts,
      Exchange(*communicator_, WritePart(temporary, shards[communicator_->rank()], state),
               "checkpoint parts", point.step));
  outcome.status = Combine(parts);

  if (outcome.status.ok()) {
    outcome.manifest = {.job = options_.job,
                        .step = point.step,
                        .generation = options_.generation,
                        .last_command = point.last_command,
                        .steering = point.steering,
                        .epoch = point.epoch,
                        .cursor = point.cursor,
                        .world_size = communicator_->world_size(),
                        .strategy = options_.strategy,
                        .model_kind = options_.model_kind,
                        .pieces = Pieces(state, shards)};
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      outcome.manifest.files.push_back(
          {ShardName(static_cast<int64_t>(rank)), parts[rank]->size, parts[rank]->hash});
    }
  }
  absl::Status committed;
  if (communicator_->rank() == 0) {
    if (outcome.status.ok()) committed = Commit(temporary, final, outcome.manifest, disk_);
    // What cannot be removed now is stale to the next generation.
    if (!outcome.status.ok() || !committed.ok()) RemoveDirectory(temporary).IgnoreError();
  }
  // Also after a failure: nobody may begin another save while rank 0 cleans up.
  ASSIGN_OR_RETURN(const auto commits,
                   Exchange(*communicator_, ToResult(committed), "checkpoint commit", point.step));
  if (outcome.status.ok()) outcome.status = Combine(commits);
  if (outcome.status.ok()) {
    last_point_ = point;
    last_outcome_ = outcome;
  } else {
    outcome.status = Annotate(outcome.status, absl::StrCat("checkpoint ", outcome.name));
    outcome.manifest = {};
  }
  return outcome;
}

absl::StatusOr<RestoreOutcome> Saver::Restore(const std::vector<std::string>& candidates,
                                              const State& state) {
  return Restore(candidates, [&state](const manifest::Manifest&) { return state; });
}

absl::StatusOr<RestoreOutcome> Saver::Restore(const std::vector<std::string>& candidates,
                                              const StateFor& state_for) {
  RestoreOutcome outcome;
  Problems reasons;
  for (const std::string& name : candidates) {
    const std::string path = files::JoinPath(options_.directory, name);
    const absl::StatusOr<VerifiedCheckpoint> checkpoint = VerifiedCheckpoint::Open(path);
    ASSIGN_OR_RETURN(auto results, Exchange(*communicator_, ToResult(checkpoint.status()),
                                            "checkpoint verified", 0));
    absl::Status status = Combine(results);
    if (status.ok()) {
      ASSIGN_OR_RETURN(const State state, state_for(checkpoint->manifest()));
      const auto copies = checkpoint->PlanCopies(state);
      ASSIGN_OR_RETURN(results, Exchange(*communicator_, ToResult(copies.status()),
                                         "checkpoint fits", 0));
      status = Combine(results);
      if (status.ok()) Fill(*copies);
    }
    if (status.ok()) {
      outcome.name = name;
      outcome.manifest = checkpoint->manifest();
      return outcome;
    }
    size_t damaged = 0;
    size_t missing = 0;
    for (const PartResult& result : results) {
      damaged += absl::IsDataLoss(result.status());
      missing += absl::IsNotFound(result.status());
    }
    if (damaged == 0 && missing < results.size()) {
      // What only some ranks miss is there: their view of the file system is at fault.
      outcome.status = missing == 0 ? Annotate(status, path)
                                    : absl::InternalError(absl::StrCat(path, ": ", status.message()));
      return outcome;
    }
    // Its absence, or a failure to rename, is told by the reason already.
    if (communicator_->rank() == 0 && std::filesystem::exists(path)) SetAside(path).IgnoreError();
    outcome.set_aside.push_back({name, Message(status)});
    reasons.Add(absl::StrCat(name, ": ", status.message()));
  }
  outcome.status = absl::NotFoundError(
      candidates.empty()
          ? "no checkpoint to restore from"
          : absl::StrCat("no good checkpoint in ", options_.directory, ": ", reasons.Text()));
  return outcome;
}

}  // namespace muster::checkpoint
