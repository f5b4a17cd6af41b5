// The whole life of a worker: attach, connect to the other ranks, run one session, report.
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
  std::string coordinator;  // its address
  // For connections to it over TCP.
  certs::TlsFiles tls;
  train::Identity identity;
  // By which this process shows that its agent started it; may be empty.
  std::string secret;
  // Where reports are kept while the coordinator cannot be reached.
  ReportSpoolOptions spool;
  // The agent's folder for files that clients fetch; empty: there is none.
  std::string downloads;
  // See ControlStreamOptions.
  std::function<absl::Time()> agents_lease_end;
  // The process must end now: it is stale, or was not welcomed. Called from any thread, also while
  // RunWorker may hang in a collective, so a real process calls _exit here.
  std::function<void(const absl::Status&)> on_fatal;
  // The same because its lease is over. Another process may get the rank in a moment, so nothing
  // that may block may be done before the process ends, not even writing a log line. Empty:
  // on_fatal is called.
  std::function<void(const absl::Status&)> on_lease_over;
};

// Blocks until the rank's session is over and its end is reported. OK: finished, or stopped as
// asked. Otherwise the error that ended it, which has been reported (and acknowledged, or 2 s have
// passed). If the worker was never welcomed: the error that on_fatal got.
absl::Status RunWorker(const WorkerOptions& options);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_RUN_WORKER_H_
