// The weights at the end of the job: written under a temporary name, which no other process has,
// and put in their place once the coordinator has said that this generation is still the current
// one.
#ifndef MUSTER_WORKER_TRAIN_WEIGHTS_EXPORT_H_
#define MUSTER_WORKER_TRAIN_WEIGHTS_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/parallel/strategy.h"
#include "worker/train/attempts.h"
#include "worker/train/job.h"
#include "worker/train/outside.h"
#include "worker/train/session_reports.h"
#include "worker/train/standing.h"

namespace muster::train {

// Threading: the session's thread.
class WeightsExport {
 public:
  // All outlive it.
  struct Parts {
    Identity identity;
    ExportConfig config;
    comm::Communicator* control;
    ExportGate* gate = nullptr;          // of rank 0; null: the weights take their place at once
    const LeaseHolder* lease = nullptr;  // null: nobody can take this process's place
    const Attempts* attempts;
    const Standing* standing;
    const SessionReports* reports;
  };
  explicit WeightsExport(Parts parts) : parts_(std::move(parts)) {}

  // At the start of a session. Rank 0: that the weights may be written where the job says, and
  // nothing older is in their way. Errors begin with "export.path".
  absl::Status Prepare() const;

  // A collective. strategy: holds the model's parameters, which have arrived and are finite; null:
  // every rank has all of them. The error of the files has Cause::kFinalSaveFailed; the others are
  // the communicator's, and UNAVAILABLE where the lease is over.
  absl::Status Write(const models::Model& model, parallel::Strategy* strategy) const;

 private:
  // How rank 0's part went, on all ranks. A type of its own: absl::StatusOr<absl::Status> would
  // take an error of the communicator for it.
  struct LeadersPart {
    absl::Status status;
  };
  absl::StatusOr<LeadersPart> TellLeadersPart(const absl::Status& mine, const char* what) const;
  // Writes them under their temporary name; a collective.
  absl::StatusOr<LeadersPart> WriteTemporary(const models::Model& model,
                                             parallel::Strategy* strategy) const;
  // Waits until they may take their place; a collective.
  absl::StatusOr<LeadersPart> AwaitGrant() const;
  // Removes what older generations left under temporary names.
  void RemoveOlder() const;
  std::string Temporary() const;

  const Parts parts_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_WEIGHTS_EXPORT_H_
