// The faults of several files, as one error. Damage has precedence over files that could not be
// read.
#ifndef MUSTER_COMMON_PROBLEMS_FAULTS_H_
#define MUSTER_COMMON_PROBLEMS_FAULTS_H_

#include "absl/status/status.h"
#include "common/problems/problems.h"
#include "common/status/status.h"

namespace muster {

class Faults {
 public:
  // Adds the fault of one file. OK is no fault.
  void Add(const absl::Status& status) {
    if (status.ok()) return;
    if (absl::IsDataLoss(status)) {
      damaged_.Add(Message(status));
      return;
    }
    if (code_ == absl::StatusCode::kOk) code_ = status.code();
    unread_.Add(Message(status));
  }

  // DATA_LOSS with the damaged files, if there are any. Otherwise the files that could not be read,
  // with the code of the first; or OK. Lists at most Problems::kShown.
  absl::Status ToStatus() const {
    if (damaged_.count() > 0) return absl::DataLossError(damaged_.Text());
    return absl::Status(code_, unread_.Text());
  }

 private:
  Problems damaged_;
  Problems unread_;
  absl::StatusCode code_ = absl::StatusCode::kOk;
};

}  // namespace muster

#endif  // MUSTER_COMMON_PROBLEMS_FAULTS_H_
