#include "worker/checkpoint/saver.h"

#include <filesystem>
#include <random>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/shard.h"

namespace muster::checkpoint {
namespace {

// Returns a hash of everything that must be equal on all ranks: the items, and the writer of each
// part.
std::string Hash(const std::vector<manifest::Piece>& pieces) {
  std::string text;
  for (const manifest::Piece& piece : pieces) {
    absl::StrAppend(&text, piece.slot, "/", piece.parameter, " ", piece.dtype, " ", piece.begin,
                    " ", piece.end, " ", piece.file);
    for (const int64_t size : piece.shape) absl::StrAppend(&text, " ", size);
    absl::StrAppend(&text, "\n");
  }
  return files::HashBytes(text.data(), text.size());
}

}  // namespace

std::string NodeId() {
  return files::ReadFile("/proc/sys/kernel/random/boot_id").value_or(std::string());
}

Saver::Saver(SaverOptions options, comm::Communicator* communicator, files::Disk& disk)
    : options_(std::move(options)), communicator_(communicator), disk_(disk) {}

absl::StatusOr<SharedOutcome> Saver::CheckSharedDirectory() {
  const bool first = communicator_->rank() == 0;
  const at::Tensor nonce = at::full({1}, static_cast<int64_t>(std::random_device()()), at::kLong);
  RETURN_IF_ERROR(communicator_->Broadcast(nonce, 0, {"checkpoint nonce", 0})->Wait());
  const uint64_t value = static_cast<uint64_t>(nonce.item<int64_t>());

  const absl::Status written = first ? WriteNonce(options_.directory, value) : absl::OkStatus();
  ASSIGN_OR_RETURN(const auto after_writing,
                   Exchange(*communicator_, ToResult(written), "checkpoint nonce written", 0));
  SharedOutcome outcome = {Combine(after_writing), Failed(after_writing)};
  if (outcome.status.ok()) {
    ASSIGN_OR_RETURN(const auto after_looking,
                     Exchange(*communicator_, ToResult(CheckNonce(options_.directory, value)),
                              "checkpoint nonce seen", 0));
    outcome = {Combine(after_looking), Failed(after_looking)};
    if (!outcome.status.ok()) {
      outcome.status = absl::FailedPreconditionError(
          absl::StrCat("checkpoint directory ", options_.directory,
                       " is not the one that rank 0 sees: ", outcome.status.message()));
    }
  }
  if (first) RemoveNonce(options_.directory, value);
  return outcome;
}

absl::Status Saver::CheckEpochHere() const {
  return options_.epoch.has_value() ? CheckEpoch(options_.directory, *options_.epoch)
                                    : absl::OkStatus();
}

PartResult Saver::CheckPlan(const State& state) const {
  // The check comes before anything is written: if a mount is missing, a checkpoint must not be
  // written to the empty mount point.
  RETURN_IF_ERROR(CheckEpochHere());
  RETURN_IF_ERROR(CheckWritable(state, communicator_->rank(), communicator_->world_size()));
  ASSIGN_OR_RETURN(const auto pieces, Pieces(state, PartsByRank(state)));
  return manifest::FileRecord{"", 0, Hash(pieces)};
}

// Adds the generation that was found, which the exchanged status does not contain.
absl::Status Saver::EndOfEpoch(const absl::Status& told) const {
  const absl::Status found = CheckEpochHere();
  return absl::IsAborted(found) ? found : told;
}

PartResult Saver::WritePart(const std::string& temporary, const std::vector<sharding::Range>& part,
                            const State& state) {
  RETURN_IF_ERROR(files::CreateDirectories(temporary));
  return WriteShard(temporary, communicator_->rank(), part, state, disk_);
}

absl::StatusOr<SaveOutcome> Saver::Save(const SavePoint& point, const State& state,
                                        const ModelRecords& records) {
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
      plan = absl::InvalidArgumentError(
          "its items, or the ranks that write them, differ from those of rank 0");
    }
  }
  outcome.status = Annotate(Combine(plans), absl::StrCat("checkpoint ", outcome.name));
  if (absl::IsAborted(outcome.status)) return EndOfEpoch(outcome.status);
  if (!outcome.status.ok()) return outcome;

  const std::vector<std::vector<sharding::Range>> shards = PartsByRank(state);
  const PartResult part = WritePart(temporary, shards[communicator_->rank()], state);
  ASSIGN_OR_RETURN(const auto parts,
                   Exchange(*communicator_, part, "checkpoint parts", point.step));
  outcome.status = Combine(parts);

  if (outcome.status.ok()) {
    ASSIGN_OR_RETURN(const auto blocks,
                     GatherTexts(*communicator_, absl::StrJoin(part->blocks, " "),
                                 "hashes of blocks", point.step));
    outcome.manifest = {.job = options_.job,
                        .job_instance = options_.epoch.has_value() ? options_.epoch->instance : "",
                        .step = point.step,
                        .generation = options_.generation,
                        .last_command = point.last_command,
                        .steering = point.steering,
                        .epoch = point.epoch,
                        .cursor = point.cursor,
                        .sampling = point.sampling,
                        .world_size = communicator_->world_size(),
                        .strategy = options_.strategy,
                        .model_kind = options_.model_kind,
                        .optimizer = records.optimizer,
                        .parameters = records.parameters,
                        .config = records.config,
                        .first_weights = records.first_weights,
                        .settings = records.settings,
                        .tokenizer = records.tokenizer,
                        .model_hash = records.model_hash};
    ASSIGN_OR_RETURN(outcome.manifest.pieces, Pieces(state, shards));
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      outcome.manifest.files.push_back({ShardName(static_cast<int64_t>(rank)), parts[rank]->size,
                                        parts[rank]->hash,
                                        absl::StrSplit(blocks[rank], ' ', absl::SkipEmpty())});
    }
  }
  absl::Status committed;
  if (communicator_->rank() == 0) {
    // Both checks are repeated, because writing may have taken long. The epoch is checked last,
    // because still_mine_ may take some time, too.
    if (outcome.status.ok() && still_mine_) committed = still_mine_();
    if (outcome.status.ok() && committed.ok()) committed = CheckEpochHere();
    if (outcome.status.ok() && committed.ok()) {
      committed = Commit(temporary, final, outcome.manifest, disk_);
    }
    // The next generation removes files that cannot be removed now.
    if (!outcome.status.ok() || !committed.ok()) RemoveDirectory(temporary).IgnoreError();
  }
  // The exchange happens after a failure, too: no rank may begin another save while rank 0 cleans
  // up.
  ASSIGN_OR_RETURN(const auto commits,
                   Exchange(*communicator_, ToResult(committed), "checkpoint commit", point.step));
  if (absl::IsAborted(commits[0].status())) return EndOfEpoch(commits[0].status());
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

}  // namespace muster::checkpoint
