#include "worker/control/command_from_wire.h"

#include <utility>

#include "common/downloads/downloads.h"
#include "common/safetensors/safetensors.h"
#include "common/trainability/from_proto.h"

namespace muster::control {
namespace {

safetensors::DType DtypeOf(v1::ModelFolder::Dtype dtype) {
  switch (dtype) {
    case v1::ModelFolder::BFLOAT16:
      return safetensors::DType::kBF16;
    case v1::ModelFolder::FLOAT16:
      return safetensors::DType::kF16;
    default:
      return safetensors::DType::kF32;
  }
}

train::SampleCommand SampleFromWire(const v1::SampleCommand& sample) {
  train::SampleCommand result{.prompt = {sample.tokens().begin(), sample.tokens().end()},
                              .max_tokens = sample.max_tokens(),
                              .seed = sample.seed()};
  if (sample.has_temperature()) result.temperature = sample.temperature();
  if (sample.has_top_k()) result.top_k = sample.top_k();
  return result;
}

}  // namespace

train::Command CommandFromWire(const v1::Command& command, const Downloads& downloads) {
  train::Command result{.number = static_cast<int64_t>(command.number()),
                        .replay = command.replay(),
                        .begun = command.begun()};
  if (command.has_at_step()) result.at_step = static_cast<int64_t>(command.at_step());
  switch (command.kind_case()) {
    case v1::Command::kStop:
      result.what = train::StopCommand();
      break;
    case v1::Command::kSaveCheckpoint:
      result.what = train::SaveCheckpointCommand();
      break;
    case v1::Command::kSetLearningRate:
      result.what = train::SetLearningRateCommand{command.set_learning_rate().learning_rate()};
      break;
    case v1::Command::kSetTrainability: {
      train::SetTrainabilityCommand set{.dry_run = command.set_trainability().dry_run()};
      set.rules = RulesFromProto(command.set_trainability().rules());
      result.what = std::move(set);
      break;
    }
    case v1::Command::kRefresh:
      result.what = train::RefreshCommand();
      break;
    case v1::Command::kGatherOptimizerState: {
      const v1::OptimizerStateFile& file = command.gather_optimizer_state().file();
      result.what = train::GatherOptimizerStateCommand{
          .path = file.download()
                      ? DownloadPath(downloads.folder, downloads.job_id, command.number())
                      : file.path(),
          .format = file.format() == v1::OptimizerStateFile::SAFETENSORS
                        ? optimizerfile::Format::kSafetensors
                        : optimizerfile::Format::kTorch,
          .key = file.key() == v1::OptimizerStateFile::NAME ? optimizerfile::Key::kName
                                                            : optimizerfile::Key::kIndex,
          // What lies there is of a deleted job with this id, or what a generation that was
          // killed had not reported.
          .overwrite = file.overwrite() || file.download(),
          .for_client = file.download(),
          .hold = file.hold()};
      break;
    }
    case v1::Command::kConsolidate: {
      const v1::ModelFolder& folder = command.consolidate().folder();
      result.what = train::ConsolidateCommand{.path = folder.path(),
                                              .dtype = DtypeOf(folder.dtype()),
                                              .max_shard_bytes = folder.max_shard_bytes(),
                                              .overwrite = folder.overwrite(),
                                              .hold = folder.hold()};
      break;
    }
    case v1::Command::kPause:
      result.what = train::PauseCommand();
      break;
    case v1::Command::kResume:
      result.what = train::ResumeCommand();
      break;
    case v1::Command::kCancel:
      result.what = train::CancelCommand{static_cast<int64_t>(command.cancel().target())};
      break;
    case v1::Command::kRunStage:
      result.what = train::RunStageCommand{command.run_stage().stage()};
      break;
    case v1::Command::kSample:
      result.what = SampleFromWire(command.sample());
      break;
    case v1::Command::kSkipData:
    case v1::Command::kNone:
    case v1::Command::KIND_NOT_SET:
      break;
  }
  return result;
}

}  // namespace muster::control
