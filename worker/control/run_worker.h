// The whole life of a worker: attach, connect to the other ranks, run a session, report its end.
#ifndef MUSTER_WORKER_CONTROL_RUN_WORKER_H_
#define MUSTER_WORKER_CONTROL_RUN_WORKER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/certs/tls_files.h"
#include "worker/control/report_spool.h"
#include "worker/train/job/job.h"

namespace muster::control {

struct WorkerOptions {
  std::string coordinator;  // the coordinator's address
  // The TLS files for connections to the coordinator over TCP.
  certs::TlsFiles tls;
  train::Identity identity;
  // The secret by which this process shows that its agent started it; may be empty.
  std::string secret;
  // The place of reports while the coordinator cannot be reached.
  ReportSpoolOptions spool;
  // The agent's folder for files that clients fetch; empty: there is none.
  std::string downloads;
  // See ControlStreamOptions.
  std::function<absl::Time()> agents_lease_end;
  // Called when the process must end now, because it is stale or was not welcomed. Called from any
  // thread. RunWorker may hang in a collective at that time, so a real process calls _exit here.
  std::function<void(const absl::Status&)> on_fatal;
  // Called when the process must end now, because its lease is over. Another process may soon get
  // the rank, so the function must not do anything that may block, not even write a log line.
  // Empty: on_fatal is called.
  std::function<void(const absl::Status&)> on_lease_over;
};

// Blocks until the rank's session is over and its end is reported. OK: finished, or stopped as
// asked. Otherwise: the session's error, which was reported (and acknowledged, unless this took
// more than 2 s). If the worker was never welcomed: the error that on_fatal got.
absl::Status RunWorker(const WorkerOptions& options);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_RUN_WORKER_H_
