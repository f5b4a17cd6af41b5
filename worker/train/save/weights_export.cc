#include "worker/train/save/weights_export.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/exports/signature.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/manifest/tensor_reader.h"
#include "common/modelfolder/folder.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/weights.h"
#include "worker/train/ranks/failure.h"

namespace muster::train {
namespace {

// The time between two rounds in which rank 0 tells all ranks whether it has the permission.
// Shorter than any timeout of a collective.
constexpr absl::Duration kGrantBeat = absl::Seconds(1);

// Checks that a file of this name can be created. A full disk is no error, because there may be
// space at the end of training.
absl::Status Probe(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return errno == ENOSPC ? absl::OkStatus() : files::ErrnoStatus(errno, "create", path);
  close(fd);
  unlink(path.c_str());
  return absl::OkStatus();
}

absl::Status Failed(const absl::Status& files) {
  return WithCause(Annotate(files, "export.path"), Cause::kFinalSaveFailed);
}

using Dependencies = WeightsExport::Dependencies;

// The result of rank 0's part of the work, known to all ranks. A type of its own, because
// absl::StatusOr<absl::Status> could not distinguish this result from an error of the communicator.
struct Rank0Result {
  absl::Status status;
};
// Writes the weights under their temporary name. A collective.
using WriteFile = std::function<absl::StatusOr<Rank0Result>()>;

std::string Temporary(const Dependencies& deps) {
  return exports::TemporaryPath(deps.config.path, deps.identity.job, deps.identity.generation,
                                deps.identity.incarnation);
}

safetensors::Metadata Metadata(const Dependencies& deps) {
  return exports::MetadataOf(deps.config.job_name, deps.identity.job,
                             deps.tokenizer == nullptr ? tokenizer::Source() : *deps.tokenizer);
}

absl::Status CheckTarget(const Dependencies& deps) {
  const ExportConfig& config = deps.config;
  return exports::CheckTarget(config.path, config.job_name, config.overwrite, deps.inputs);
}

// Returns the config.json of the exported model.
std::string ConfigOf(const ExportConfig& config, const models::Model& model) {
  const std::string whole = model.HuggingFaceConfig();
  if (config.vocab_size == 0 || whole.empty()) return whole;
  auto json = nlohmann::ordered_json::parse(whole);
  json["vocab_size"] = config.vocab_size;
  return json.dump(2) + "\n";
}

absl::StatusOr<checkpoint::FirstRows> RowsOf(const ExportConfig& config,
                                             const models::Model& model) {
  if (config.vocab_size == 0) return checkpoint::FirstRows();
  return checkpoint::FirstTokens(model, config.vocab_size);
}

// Reads the files of the tokenizer that belongs to the weights, and checks whether they may be
// written beside the weights.
absl::Status ReadAndCheckTokenizer(const ExportConfig& config,
                                   std::map<std::string, std::string>* tokenizer) {
  if (config.tokenizer_from.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(*tokenizer, modelfolder::ReadTokenizer(config.tokenizer_from));
  for (const auto& [name, contents] : *tokenizer) {
    RETURN_IF_ERROR(
        exports::CheckBeside(config.path, name, contents, config.job_name, config.overwrite));
  }
  return absl::OkStatus();
}

// Gives the weights their final name, and writes the config.json and the tokenizer.
absl::Status Place(const Dependencies& deps, const models::Model& model) {
  const ExportConfig& config = deps.config;
  // The checks run again, so that files which others wrote during training are not lost.
  absl::Status status = CheckTarget(deps);
  if (status.ok()) {
    status = exports::CheckConfig(config.path, ConfigOf(config, model), config.job_name,
                                  config.overwrite);
  }
  std::map<std::string, std::string> tokenizer;
  if (status.ok()) status = ReadAndCheckTokenizer(config, &tokenizer);
  if (status.ok()) status = files::RenameDurably(Temporary(deps), config.path);
  if (status.ok()) {
    for (const auto& [name, contents] : tokenizer) {
      RETURN_IF_ERROR(files::WriteAtomically(
          files::JoinPath(files::ParentDirectory(config.path), name), contents));
    }
    return checkpoint::WriteConfig(config.path, ConfigOf(config, model));
  }
  // The path comes first, because long texts are cut when they are sent to other ranks.
  return absl::Status(status.code(),
                      absl::StrCat("the weights are in ", Temporary(deps), ": ", status.message()));
}

// Returns rank 0's `mine` on all ranks. A collective.
absl::StatusOr<Rank0Result> ShareRank0Result(const Dependencies& deps, const absl::Status& mine,
                                             const char* what) {
  ASSIGN_OR_RETURN(const auto results,
                   checkpoint::Exchange(*deps.control, checkpoint::ToResult(mine), what,
                                        deps.session_state->step));
  return Rank0Result{results[0].status()};
}

// Writes the parameters that `strategy` holds. A WriteFile.
absl::StatusOr<Rank0Result> WriteTemporary(const Dependencies& deps, const models::Model& model,
                                           parallel::Strategy* strategy) {
  const size_t parameters = model.Parameters().size();
  size_t gathered = 0;
  const auto gather = [&](size_t parameter) {
    gathered = parameter + 1;
    return strategy == nullptr ? absl::OkStatus() : strategy->store().Gather({parameter});
  };
  absl::Status files;
  absl::Status communication;
  if (deps.reports->leader()) {
    const auto before_read = [&](size_t parameter) {
      communication = gather(parameter);
      return communication;
    };
    const auto rows = RowsOf(deps.config, model);
    files = rows.ok()
                ? checkpoint::WriteWeights(Temporary(deps), model.Parameters(), model.Buffers(),
                                           Metadata(deps), before_read, *rows)
                : rows.status();
    RETURN_IF_ERROR(communication);
  }
  // The gathers continue after a failed write, because the other ranks make all of them.
  while (gathered < parameters) RETURN_IF_ERROR(gather(gathered));
  if (strategy != nullptr) strategy->store().Release();
  // On a GPU, a gather may turn out to have failed after its values were written.
  RETURN_IF_ERROR(deps.communicators.failure());
  return ShareRank0Result(deps, files, "export written");
}

// Waits until the weights may get their final name. A collective.
absl::StatusOr<Rank0Result> AwaitGrant(const Dependencies& deps) {
  const bool asks = deps.reports->leader() && deps.gate != nullptr;
  const std::string& path = deps.config.path;
  if (asks) deps.reports->Report(ExportReady{Temporary(deps), path});
  absl::Duration waited = absl::ZeroDuration();
  while (true) {
    absl::Status word;
    if (asks && !deps.gate->WaitForGrant(path, kGrantBeat)) {
      waited += kGrantBeat;
      word = absl::UnavailableError("not yet");
      if (waited >= deps.gate->grant_timeout()) {
        word = absl::DeadlineExceededError(absl::StrCat(
            "the weights are in ", Temporary(deps), ": the coordinator did not allow within ",
            absl::FormatDuration(deps.gate->grant_timeout()), " that they get their final name"));
      }
    }
    ASSIGN_OR_RETURN(const Rank0Result told, ShareRank0Result(deps, word, "export granted"));
    if (!absl::IsUnavailable(told.status)) return told;
    deps.reports->Progress("waiting until the coordinator allows the weights their final name");
  }
}

// Removes temporary files of older generations.
void RemoveOlder(const Dependencies& deps) {
  // Called after this generation's weights have their final name. Before that, the older files may
  // be the only weights of a job that failed at its export.
  const auto removed =
      exports::RemoveStale(deps.config.path, deps.identity.job, deps.identity.generation);
  if (!removed.ok()) {
    return spdlog::warn("cannot remove the temporary files that older generations left: {}",
                        Message(removed.status()));
  }
  for (const std::string& name : *removed) {
    spdlog::info("removed {}, which an older generation of this job left", name);
  }
}

// Runs the whole export. `write_file` writes the file.
absl::Status WriteAnd(const Dependencies& deps, const models::Model& model,
                      const WriteFile& write_file) {
  for (int attempt = 1;; ++attempt) {
    ASSIGN_OR_RETURN(const Rank0Result written, write_file());
    if (written.status.ok()) break;
    if (!deps.attempts->TryAgain(written.status, attempt, "exporting the weights")) {
      return Failed(written.status);
    }
  }
  ASSIGN_OR_RETURN(const Rank0Result granted, AwaitGrant(deps));
  if (!granted.status.ok()) return Failed(granted.status);
  absl::Status placed;
  if (deps.reports->leader()) {
    // A lost lease is not a failed export: the next generation exports.
    if (deps.lease != nullptr) RETURN_IF_ERROR(deps.lease->StillMine());
    placed = Place(deps, model);
  }
  ASSIGN_OR_RETURN(const Rank0Result told, ShareRank0Result(deps, placed, "export placed"));
  if (!told.status.ok()) return Failed(told.status);
  if (deps.reports->leader()) RemoveOlder(deps);
  deps.reports->Report(Exported{deps.config.path});
  return absl::OkStatus();
}

}  // namespace

absl::Status WeightsExport::Prepare() const {
  if (!deps_.reports->leader()) return absl::OkStatus();
  const ExportConfig& config = deps_.config;
  const auto check = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckTarget(deps_));
    RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(config.path)));
    return Probe(Temporary(deps_));
  };
  return Annotate(check(), "export.path");
}

absl::Status WeightsExport::PrepareConfig(const models::Model& model) const {
  if (!deps_.reports->leader()) return absl::OkStatus();
  const ExportConfig& config = deps_.config;
  absl::Status status =
      exports::CheckConfig(config.path, ConfigOf(config, model), config.job_name, config.overwrite);
  std::map<std::string, std::string> tokenizer;
  if (status.ok()) status = ReadAndCheckTokenizer(config, &tokenizer);
  RETURN_IF_ERROR(Annotate(status, "export.path"));
  return Annotate(RowsOf(config, model).status(), "export.vocab_size");
}

absl::Status WeightsExport::Write(const models::Model& model, parallel::Strategy* strategy) const {
  return WriteAnd(deps_, model, [&] { return WriteTemporary(deps_, model, strategy); });
}

absl::Status WeightsExport::WriteStored(const models::Model& model, const std::string& directory,
                                        const std::string& slot) const {
  const auto write = [&]() -> absl::Status {
    auto opened = manifest::TensorReader::Open(directory);
    if (absl::IsNotFound(opened.status())) {
      return absl::NotFoundError(
          absl::StrCat(Message(opened.status()),
                       ": the best checkpoint is not there; if its file system is mounted again, "
                       "`muster retry ",
                       deps_.identity.job, "` writes the export"));
    }
    RETURN_IF_ERROR(opened.status());
    manifest::TensorReader& reader = *opened;
    // A checkpoint before the first averages has none. The validation then used the parameters.
    const auto& tensors = reader.tensors();
    const bool has_slot = std::any_of(tensors.begin(), tensors.end(),
                                      [&](const auto& tensor) { return tensor.slot == slot; });
    ASSIGN_OR_RETURN(const auto rows, RowsOf(deps_.config, model));
    return checkpoint::WriteStoredWeights(Temporary(deps_), model.Parameters(), model.Buffers(),
                                          Metadata(deps_), has_slot ? slot : "param", &reader,
                                          rows);
  };
  return WriteAnd(deps_, model, [&] {
    const absl::Status mine = deps_.reports->leader() ? write() : absl::OkStatus();
    return ShareRank0Result(deps_, mine, "export written");
  });
}

}  // namespace muster::train
