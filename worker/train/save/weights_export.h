// Exports the weights at the end of the job (Gathering::Export: during training). They are written
// under a temporary name that no other process uses, and get their final name once the coordinator
// has said that this generation is still the current one.
#ifndef MUSTER_WORKER_TRAIN_SAVE_WEIGHTS_EXPORT_H_
#define MUSTER_WORKER_TRAIN_SAVE_WEIGHTS_EXPORT_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/exports/target.h"
#include "common/tokenizer/source.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/parallel/communicators.h"
#include "worker/parallel/strategy.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"

namespace muster::train {

// Threading: the session's thread.
class WeightsExport {
 public:
  // All outlive it.
  struct Parts {
    Identity identity;
    ExportConfig config;
    comm::Communicator* control;
    parallel::Communicators communicators;  // the strategy's
    ExportGate* gate = nullptr;             // on rank 0; null: the weights are renamed at once
    const LeaseHolder* lease = nullptr;     // null: no other process can replace this one
    const Attempts* attempts;
    const SessionState* session_state;
    const SessionReports* reports;
    exports::Inputs inputs = {};  // files that are never replaced
    // What made the training data; null: it is not known.
    const tokenizer::Source* tokenizer = nullptr;
  };
  explicit WeightsExport(Parts parts) : parts_(std::move(parts)) {}

  // Called at the start of a session. Rank 0 checks that the weights may be written to the path in
  // the job and that no older file prevents it. Errors begin with "export.path".
  absl::Status Prepare() const;
  // The same for the config.json that is written beside the weights of this model.
  absl::Status PrepareConfig(const models::Model& model) const;

  // A collective. `strategy` holds the model's parameters, which are up to date and finite; null:
  // every rank has all of them. Errors of files have Cause::kFinalSaveFailed. Other errors: the
  // communicator's; UNAVAILABLE: the lease is over.
  absl::Status Write(const models::Model& model, parallel::Strategy* strategy) const;

  // The same with the values that a checkpoint of this model has of its parameters in `slot`, or in
  // "param" if it has none in that; rank 0 reads it, and `directory` counts there only.
  absl::Status WriteStored(const models::Model& model, const std::string& directory,
                           const std::string& slot) const;

 private:
  const Parts parts_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_WEIGHTS_EXPORT_H_
