// What went wrong with several files, as one error. Damage counts more than what could not be
// read.
#ifndef MUSTER_COMMON_PROBLEMS_FAULTS_H_
#define MUSTER_COMMON_PROBLEMS_FAULTS_H_

#include "absl/status/status.h"
#include "common/problems/problems.h"
#include "common/status/status.h"

namespace muster {

class Faults {
 public:
  // Of one file. OK is no fault.
  void Add(const absl::Status& status) {
    if (status.ok()) return;
    if (absl::IsDataLoss(status)) {
      damaged_.Add(Message(status));
      return;
    }
    if (code_ == absl::StatusCode::kOk) code_ = status.code();
    unread_.Add(Message(status));
  }

  // DATA_LOSS with what is damaged, if anything is. Otherwise what could not be read, with the
  // first code; or OK. At most Problems::kShown are listed.
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
