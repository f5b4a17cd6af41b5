// Handles signals while `muster run` runs a job.
//
// Ctrl-C asks the job to stop; a second Ctrl-C, or SIGQUIT, ends everything at once. SIGTERM,
// SIGHUP, SIGUSR1 and SIGUSR2 ask the run to leave: its job saves a checkpoint and ends, and
// continues later. A run on another coordinator than its own treats SIGTERM as Ctrl-C. The other
// three signals then end only the run, and not the job.
#ifndef MUSTER_CLIENT_CLI_STOPPER_H_
#define MUSTER_CLIENT_CLI_STOPPER_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/api/cancellation.h"
#include "client/api/client.h"
#include "client/cli/terminal/interrupts.h"
#include "common/steady/condition.h"

namespace muster::cli {

// The coordinator that runs the job: this run's own or another.
enum class Coordinator { kOwn, kAnother };

// Listens to signals for its lifetime. Thread-safe.
class Stopper {
 public:
  Stopper(Interrupts* interrupts, Coordinator coordinator);
  ~Stopper();

  // Whether a signal has come.
  bool interrupted() const { return interrupted_.cancelled(); }
  bool hurried() const { return at_once_.cancelled(); }
  // Whether the job should continue later. False after Ctrl-C.
  bool leaves() const;
  // Cancelled by the first signal: no new work needs to begin.
  client::Cancellation* interruption() { return &interrupted_; }
  // Cancelled when no call needs to go on, which is in these cases:
  // - A signal came that ends everything at once.
  // - 45 s have passed in which another coordinator than this run's own did not accept the request
  //   to stop the job.
  // - CoordinatorEnded was called a moment ago.
  client::Cancellation* over() { return &over_; }

  // Tells that this run's own coordinator runs. `leave` makes the coordinator end its jobs in
  // order. `leave` is called at most once, and at once if the signal has come already. It must be
  // callable for the lifetime of this object.
  void CoordinatorRuns(std::function<void()> leave);
  // Tells that this run's own coordinator has ended. Its last messages may still have to be read.
  void CoordinatorEnded();
  // Tells that this job runs: Ctrl-C stops the job, at once if Ctrl-C has come already. `client`
  // must live until JobHasEnded returns.
  void JobRuns(client::MusterClient* client, const std::string& job_id);
  void JobHasEnded();

 private:
  struct Job {
    // Null: no job runs.
    client::MusterClient* client = nullptr;
    std::string id;
  };

  void Signalled(int signal);
  void Run();
  // Calls leave_, unless leave_ was called already.
  void Leave();

  const Coordinator coordinator_;
  client::Cancellation interrupted_;
  client::Cancellation at_once_;
  client::Cancellation over_;
  // Ends the call that asks the job to stop.
  client::Cancellation stop_call_;

  mutable absl::Mutex mutex_;
  SteadyCondition changed_;  // job_over_
  Job job_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> leave_ ABSL_GUARDED_BY(mutex_);
  bool stop_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool leave_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;  // job_.client is being used
  bool job_over_ ABSL_GUARDED_BY(mutex_) = false;

  // The threads come after the members that they use.
  std::thread thread_;
  Interrupts::Listener listener_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_STOPPER_H_
