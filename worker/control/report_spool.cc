#include "worker/control/report_spool.h"

#include <unistd.h>

#include "common/spool/spool.h"
#include "common/status/status.h"

namespace muster::control {

ReportSpool::ReportSpool(const ReportSpoolOptions& options, const v1::WorkerIdentity& worker)
    : options_(options), worker_(worker.SerializeAsString()) {}

absl::Status ReportSpool::Add(const std::vector<std::string>& reports, uint64_t through) {
  const absl::Status status =
      written_ ? AppendToSpool(options_.path, reports)
               : WriteSpool(options_.path, {.worker = worker_, .reports = reports});
  if (!status.ok()) {
    Reset();
    return Annotate(status, "reports cannot be kept for the coordinator");
  }
  written_ = true;
  through_ = through;
  return absl::OkStatus();
}

absl::Status ReportSpool::Sync() { return written_ ? SyncSpool(options_.path) : absl::OkStatus(); }

void ReportSpool::Reset() {
  written_ = false;
  through_ = 0;
}

void ReportSpool::Remove() {
  unlink(options_.path.c_str());
  Reset();
}

}  // namespace muster::control
