#include "worker/train/save/gathering.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <utility>

#include "common/exports/signature.h"
#include "common/optimizerfile/optimizer_file.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/gather.h"
#include "worker/checkpoint/model_output.h"
#include "worker/checkpoint/shard.h"

namespace muster::train {

using Clock = std::chrono::steady_clock;
using Output = absl::StatusOr<std::unique_ptr<checkpoint::JointOutput>>;

namespace {

checkpoint::State Weights(const checkpoint::State& state) {
  return checkpoint::Only(state, checkpoint::IsWeight);
}

optimizerfile::Format FormatOf(const v1::OptimizerStateFile& file) {
  return file.format() == v1::OptimizerStateFile::SAFETENSORS ? optimizerfile::Format::kSafetensors
                                                              : optimizerfile::Format::kTorch;
}

optimizerfile::Key KeyOf(const v1::OptimizerStateFile& file) {
  return file.key() == v1::OptimizerStateFile::NAME ? optimizerfile::Key::kName
                                                    : optimizerfile::Key::kIndex;
}

safetensors::DType DtypeOf(const v1::ModelFolder& folder) {
  switch (folder.dtype()) {
    case v1::ModelFolder::BFLOAT16:
      return safetensors::DType::kBF16;
    case v1::ModelFolder::FLOAT16:
      return safetensors::DType::kF16;
    default:
      return safetensors::DType::kF32;
  }
}

}  // namespace

struct Gathering::Task {
  const char* what = "";  // for messages
  std::string path;
  enum class Kind { kFile, kFolder };
  Kind kind = Kind::kFile;
  int64_t command = 0;
  // Returns the part of the state that is written.
  std::function<checkpoint::State(const checkpoint::State&)> part;
  // Returns the output.
  std::function<Output(const std::string& temporary, const checkpoint::State&,
                       const checkpoint::ModelRecords&)>
      output;
  std::function<void(const absl::StatusOr<Written>&)> told;

  int64_t step = 0;
  checkpoint::State state;
  checkpoint::ModelRecords records;
  Clock::time_point begun;
  double stall_seconds = 0;  // the time that training waited; 0: until the end
};

absl::Status Gathering::Gather(const v1::OptimizerStateFile& file, int64_t command, Told told) {
  const double factor = optim::LearningRateFactor(*deps_.learning_rates, deps_.session_state->step);
  Task task{
      .what = "gathering the optimizer's state",
      .path = file.path(),
      .command = command,
      .part = [](const auto& state) { return checkpoint::Only(state, checkpoint::IsOptimizers); }};
  task.output = [file, factor, leader = deps_.reports->leader(),
                 writer = exports::WriterOf(deps_.identity.job, command)](
                    const std::string& temporary, const checkpoint::State& state,
                    const checkpoint::ModelRecords& records) -> Output {
    if (file.path().empty() && leader) {
      return absl::FailedPreconditionError(
          "rank 0's agent has no folder for files that clients fetch: its log says why the folder "
          "cannot be used; give the path of a file on the cluster instead (--out without "
          "--download)");
    }
    return checkpoint::OptimizerStateOutput({.path = file.path(),
                                             .temporary = temporary,
                                             .format = FormatOf(file),
                                             .key = KeyOf(file),
                                             .overwrite = file.overwrite(),
                                             .writer = writer,
                                             .for_owner = file.download(),
                                             .schedule_factor = factor},
                                            state, records);
  };
  task.told = [path = file.path(), told = std::move(told)](const absl::StatusOr<Written>& written) {
    if (!written.ok()) return told(written.status());
    told(OptimizerStateGathered{.path = path,
                                .step = written->step,
                                .bytes = written->bytes,
                                .stall_seconds = written->stall_seconds,
                                .seconds = written->seconds});
  };
  return Begin(std::move(task), file.hold());
}

absl::Status Gathering::Consolidate(const v1::ModelFolder& folder, int64_t command,
                                    ToldOfModel told) {
  RETURN_IF_ERROR(deps_.source->AwaitWeights());
  auto contents = std::make_shared<checkpoint::ModelFolderContents>();
  Task task{.what = "consolidating the model",
            .path = folder.path(),
            .kind = Task::Kind::kFolder,
            .command = command,
            .part = Weights};
  task.output = [folder, contents, job = deps_.identity.job, command](
                    const std::string& temporary, const checkpoint::State& state,
                    const checkpoint::ModelRecords& records) {
    checkpoint::ModelFolderOptions options{
        .path = folder.path(),
        .temporary = temporary,
        .dtype = DtypeOf(folder),
        .overwrite = folder.overwrite(),
        .writer = exports::WriterOf(job, command),
        .metadata = {{"format", "pt"}, {exports::kJobIdKey, job}}};
    if (folder.max_shard_bytes() > 0) options.max_shard_bytes = folder.max_shard_bytes();
    return checkpoint::ModelFolderOutput(options, state, records, contents.get());
  };
  task.told = [path = folder.path(), contents,
               told = std::move(told)](const absl::StatusOr<Written>& written) {
    if (!written.ok()) return told(written.status());
    told(ModelConsolidated{.path = path,
                           .step = written->step,
                           .bytes = written->bytes,
                           .files = contents->files,
                           .notes = contents->notes,
                           .stall_seconds = written->stall_seconds,
                           .seconds = written->seconds});
  };
  return Begin(std::move(task), folder.hold());
}

absl::Status Gathering::Export(const ExportConfig& config) {
  RETURN_IF_ERROR(deps_.source->AwaitWeights());
  Task task{
      .what = "exporting the weights",
      .path = config.path,
      .part = config.from == ExportConfig::From::kAverages ? checkpoint::AveragedWeights : Weights};
  task.output = [config, job = deps_.identity.job](const std::string& temporary,
                                                   const checkpoint::State& state,
                                                   const checkpoint::ModelRecords& records) {
    return checkpoint::WeightsFileOutput(
        {.path = config.path,
         .temporary = temporary,
         .overwrite = config.overwrite,
         .job_name = config.job_name,
         .metadata = exports::MetadataOf(config.job_name, job, records.tokenizer)},
        state, records);
  };
  task.told = [reports = deps_.reports, path = config.path,
               step = deps_.session_state->step](const absl::StatusOr<Written>& written) {
    if (written.ok()) {
      if (reports->leader()) spdlog::info("{} has the weights after step {}", path, step);
      return;
    }
    reports->Report(
        Notice{"EXPORT_FAILED", Message(Annotate(written.status(), "export.path")), step});
  };
  return Begin(std::move(task), /*hold=*/false);
}

absl::Status Gathering::Begin(Task task, bool hold) {
  task.begun = Clock::now();
  RETURN_IF_ERROR(deps_.background->Await());
  deps_.reports->Progress(task.what);
  command_ = task.command;
  cancelled_ = false;
  told_ = task.told;
  task.step = deps_.session_state->step;
  const checkpoint::State state = deps_.source->State();
  task.state = task.part(state);
  ASSIGN_OR_RETURN(task.records, deps_.source->Records(state));
  if (hold) {
    task_ = deps_.background->Skip();
    return Write(task);
  }
  auto copy = deps_.background->Copy(task.state);
  if (!copy.ok()) {
    spdlog::warn("{}; training waits until {} is written", Message(copy.status()), task.path);
    task_ = deps_.background->Skip();
    return Write(task);
  }
  task.state = *std::move(copy);
  task.stall_seconds = std::chrono::duration<double>(Clock::now() - task.begun).count();
  task_ = deps_.background->Start([this, task = std::move(task)] { return Write(task); });
  return absl::OkStatus();
}

absl::Status Gathering::CheckPlace(const Task& task) const {
  if (!deps_.reports->leader() || task.path.empty()) return absl::OkStatus();
  return task.kind == Task::Kind::kFolder ? exports::CheckHoldsNoInput(task.path, deps_.inputs)
                                          : exports::CheckPlace(task.path, deps_.inputs);
}

absl::Status Gathering::Write(const Task& task) {
  const Identity& identity = deps_.identity;
  std::string temporary;
  if (deps_.reports->leader()) {
    // Leftovers of an export stay: they may be the only weights of a job that failed at its end.
    if (task.command != 0) RemoveLeftovers(task.path);
    temporary =
        exports::TemporaryPath(task.path, identity.job, identity.generation, identity.incarnation);
  }
  // The name of the file contains rank 0's incarnation.
  ASSIGN_OR_RETURN(temporary,
                   checkpoint::TellAll(*deps_.communicator, temporary, "name of the file"));
  deps_.writing->Begin(task.command,
                       checkpoint::BytesWritten(task.state, deps_.communicator->rank()));
  const absl::Status place = CheckPlace(task);
  const auto outcome = checkpoint::WriteTogether(
      place.ok() ? task.output(temporary, task.state, task.records) : Output(place), task.state,
      deps_.communicator,
      {.step = task.step,
       .cancelled = &cancelled_,
       .still_mine = [&]() -> absl::Status {
         RETURN_IF_ERROR(CheckPlace(task));
         return deps_.lease == nullptr ? absl::OkStatus() : deps_.lease->StillMine();
       }},
      *deps_.disk);
  deps_.writing->End();
  RETURN_IF_ERROR(outcome.status());
  end_ = outcome->status;
  if (!end_.ok()) {
    // Cancel reports a cancel. Here the cause may be a job that leaves its nodes, which another
    // rank may have heard earlier.
    if (!absl::IsCancelled(end_)) task.told(end_);
    return absl::OkStatus();
  }
  if (task.command == 0) RemoveLeftovers(task.path);
  const double seconds = std::chrono::duration<double>(Clock::now() - task.begun).count();
  task.told(Written{.step = task.step,
                    .bytes = outcome->bytes,
                    .stall_seconds = task.stall_seconds > 0 ? task.stall_seconds : seconds,
                    .seconds = seconds});
  return absl::OkStatus();
}

absl::StatusOr<bool> Gathering::Cancel(int64_t command) {
  const bool newest = command == command_ && task_ == deps_.background->newest();
  if (!newest) return false;
  cancelled_ = true;
  RETURN_IF_ERROR(deps_.background->Await());
  command_ = 0;
  if (!absl::IsCancelled(end_)) return false;
  told_(end_);
  return true;
}

absl::Status Gathering::LeaveToNextGeneration() {
  if (task_ != deps_.background->newest()) return absl::OkStatus();
  cancelled_ = true;
  return deps_.background->Await();
}

void Gathering::RemoveLeftovers(const std::string& path) const {
  if (!deps_.reports->leader()) return;
  const Identity& identity = deps_.identity;
  const auto removed = exports::RemoveStale(path, identity.job, identity.generation);
  if (!removed.ok()) spdlog::warn("{}: {}", path, Message(removed.status()));
}

}  // namespace muster::train
