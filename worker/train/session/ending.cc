// How training ends, and what is left of it.
#include <spdlog/spdlog.h>

#include <string>

#include "common/status/status.h"
#include "worker/checkpoint/state.h"
#include "worker/memory/resident.h"
#include "worker/train/session/running.h"

namespace muster::train {

void ReturnFreedMemory(const std::string& when) {
  memory::ReturnFreedMemory();
  spdlog::info("{}: {:.2f} MiB are resident", when,
               static_cast<double>(memory::ResidentBytes()) / (1 << 20));
}

absl::Status Running::EndTraining() {
  if (!loaded_->trains() || state().training_over) return absl::OkStatus();
  RETURN_IF_ERROR(background_.Await());
  // Commands that are due at this step may need what is freed.
  RETURN_IF_ERROR(RunToEnd([] { return true; }));
  if (state().stopped) return absl::OkStatus();
  RETURN_IF_ERROR(background_.Await());
  // A job that could not save its last checkpoint, or that began at its end with another job's,
  // may be told to save one.
  if (has_checkpoints() && !writers_.saving->HasOneOf(state().step)) return absl::OkStatus();
  reports().Progress("freeing what only training needs");
  TrainedParameters& trained = *loaded_->agreed->trained;
  trained.Want(Mask(trained.in_force().size(), false));
  RETURN_IF_ERROR(calls_.between.CallNow().status());  // the ranks compare what they want
  RETURN_IF_ERROR(loaded_->training->Release(state().step));
  ReturnFreedMemory("after training");
  state().training_over = true;
  return absl::OkStatus();
}

absl::Status Running::Export() {
  if (!writers_.weights_export.has_value()) return absl::OkStatus();
  reports().Progress("exporting the weights");
  // An export during training has the same names.
  RETURN_IF_ERROR(background_.Await());
  if (job().weights_export->from == ExportConfig::From::kBest) {
    ASSIGN_OR_RETURN(const std::string best, writers_.best.Path());
    // The values that were judged.
    const bool averages =
        job().evaluation.averages.has_value() && job().evaluation.averages->evaluate;
    RETURN_IF_ERROR(writers_.weights_export->WriteStored(
        live_.model(), best, averages ? checkpoint::kAverageSlot : "param"));
    return calls_.between.CallNow().status();
  }
  RETURN_IF_ERROR(live_.AwaitParameters());
  RETURN_IF_ERROR(ExportWeights());
  // No rank ends before the weights have their final name.
  return calls_.between.CallNow().status();
}

absl::Status Running::ExportWeights() {
  RETURN_IF_ERROR(loaded_->agreed->finite->Check(state().step, live_.strategy()));
  if (job().weights_export->from != ExportConfig::From::kAverages) {
    return writers_.weights_export->Write(live_.model(), live_.strategy());
  }
  ASSIGN_OR_RETURN(const auto scope, forwards_.passes.WithAverages(live_.training()));
  RETURN_IF_ERROR(writers_.weights_export->Write(live_.model(), live_.strategy()));
  return scope->End();
}

}  // namespace muster::train
