// Handles Ctrl-C while `muster run` runs a job: the first one asks the job to stop, the second one
// ends everything at once.
#ifndef MUSTER_CLIENT_CLI_STOPPER_H_
#define MUSTER_CLIENT_CLI_STOPPER_H_

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/api/cancellation.h"
#include "client/api/client.h"
#include "client/cli/terminal/interrupts.h"
#include "common/steady/condition.h"

namespace muster::cli {

// Listens to interrupts for its lifetime. Thread-safe.
class Stopper {
 public:
  explicit Stopper(Interrupts* interrupts);
  ~Stopper();

  bool interrupted() const { return interrupted_.cancelled(); }
  bool hurried() const { return at_once_.cancelled(); }
  // Cancelled by the first interrupt: no new work needs to begin.
  client::Cancellation* interruption() { return &interrupted_; }
  // Cancelled by the second interrupt, or 45 s after the coordinator did not accept the request to
  // stop the job.
  client::Cancellation* at_once() { return &at_once_; }

  // From now on the first interrupt stops this job. If it has come already, the job is stopped at
  // once. `client` must live until JobHasEnded returns.
  void JobRuns(client::MusterClient* client, const std::string& job_id);
  void JobHasEnded();

 private:
  void Run();

  client::Cancellation interrupted_;
  client::Cancellation at_once_;
  // Ends the call that asks the job to stop.
  client::Cancellation stop_call_;

  mutable absl::Mutex mutex_;
  SteadyCondition ended_;  // over_ has changed
  client::MusterClient* client_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string job_id_ ABSL_GUARDED_BY(mutex_);
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;   // an interrupt has come
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;  // client_ is being used
  bool over_ ABSL_GUARDED_BY(mutex_) = false;

  // Declared after the members that they use.
  std::thread thread_;
  Interrupts::Listener listener_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_STOPPER_H_
