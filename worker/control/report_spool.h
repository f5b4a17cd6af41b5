// This worker's reports on its agent's disk while the coordinator cannot be reached
// (common/spool/spool.h). Not thread-safe.
#ifndef MUSTER_WORKER_CONTROL_REPORT_SPOOL_H_
#define MUSTER_WORKER_CONTROL_REPORT_SPOOL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/muster/v1/agent_service.pb.h"

namespace muster::control {

struct ReportSpoolOptions {
  // The path of the file; empty: there is no file, and no report is kept.
  std::string path;
  // How many bytes all reports together may take up.
  size_t limit = 64 << 20;
};

class ReportSpool {
 public:
  ReportSpool(const ReportSpoolOptions& options, const v1::WorkerIdentity& worker);

  bool enabled() const { return !options_.path.empty(); }
  size_t limit() const { return options_.limit; }
  // All reports up to this one that were not acknowledged when they were added are in the file.
  uint64_t through() const { return through_; }

  // Serialized reports that follow through(), in order, the last of which is `through`. After an
  // error the existing contents stay; the next call writes the file again.
  absl::Status Add(const std::vector<std::string>& reports, uint64_t through);
  // Syncs the file, so that it also survives a crash of the machine.
  absl::Status Sync();
  // The next call of Add replaces the whole contents.
  void Reset();
  // The coordinator has acknowledged all of it.
  void Remove();

 private:
  const ReportSpoolOptions options_;
  const std::string worker_;
  bool written_ = false;
  uint64_t through_ = 0;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_REPORT_SPOOL_H_
