// Exports the weights at the end of the job; Gathering::Export exports them during training. The
// weights are written under a temporary name that no other process uses. They get their final name
// after the coordinator has confirmed that this generation is the current one.
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
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"

namespace muster::train {

// Threading: the session's thread.
class WeightsExport {
 public:
  // All must outlive this object.
  struct Dependencies {
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
    // The tokenizer of the training data; null: not known.
    const tokenizer::Source* tokenizer = nullptr;
  };
  explicit WeightsExport(Dependencies deps) : deps_(std::move(deps)) {}

  // Checks, at the start of a session, that rank 0 may write the weights to the path of the job and
  // that no older file prevents this. Errors begin with "export.path".
  absl::Status Prepare() const;
  // Makes the same check for the config.json and the tokenizer in the folder of this model's
  // weights.
  absl::Status PrepareConfig(const models::Model& model) const;

  // Writes the weights. A collective. `strategy` holds the model's parameters, which are current
  // and finite; null: every rank has all parameters. Errors of files have Cause::kFinalSaveFailed.
  // Other errors: the communicator's; UNAVAILABLE: the lease is over.
  absl::Status Write(const models::Model& model, parallel::Strategy* strategy) const;

  // Writes the parameters of a checkpoint of this model: the values in `slot`, or in "param" if the
  // checkpoint has no such slot. Rank 0 reads the checkpoint; `directory` is used on rank 0 only. A
  // collective with the errors of Write.
  absl::Status WriteStored(const models::Model& model, const std::string& directory,
                           const std::string& slot) const;

 private:
  const Dependencies deps_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_WEIGHTS_EXPORT_H_
