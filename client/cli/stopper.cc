#include "client/cli/stopper.h"

#include <utility>

namespace muster::cli {
namespace {

// The time to wait for a job that the coordinator was not able to stop.
constexpr absl::Duration kStopTimeout = absl::Seconds(45);
// The time for which this run's own coordinator is asked again to stop the job. A coordinator that
// cannot write its store refuses the request. The run then ends the job by a drain, which needs no
// store.
constexpr absl::Duration kOwnRetry = absl::Seconds(1);
// The time between two requests while the job has not ended.
constexpr absl::Duration kAskAgain = absl::Seconds(2);
// The time for the last messages of a coordinator that has ended.
constexpr absl::Duration kLastMessages = absl::Milliseconds(500);

}  // namespace

Stopper::Stopper(Interrupts* interrupts, Coordinator coordinator)
    : coordinator_(coordinator),
      thread_([this] { Run(); }),
      listener_(interrupts, [this](int signal) { Signalled(signal); }) {}

Stopper::~Stopper() {
  {
    absl::MutexLock lock(&mutex_);
    job_over_ = true;
  }
  changed_.Changed();
  thread_.join();
}

void Stopper::Signalled(int signal) {
  const bool own = coordinator_ == Coordinator::kOwn;
  bool at_once = signal == SIGQUIT;
  bool leave = false;
  {
    absl::MutexLock lock(&mutex_);
    if (signal == SIGINT) {
      at_once = std::exchange(stop_wanted_, true);
    } else if (signal == SIGTERM && !own) {
      stop_wanted_ = true;
    } else if (signal != SIGQUIT && own) {
      leave_wanted_ = leave = true;
    } else {
      at_once = true;
    }
  }
  interrupted_.Cancel();
  if (leave) Leave();
  if (!at_once) return;
  at_once_.Cancel();
  over_.Cancel();
  stop_call_.Cancel();
}

bool Stopper::leaves() const {
  absl::MutexLock lock(&mutex_);
  return leave_wanted_ && !stop_wanted_;
}

void Stopper::Leave() {
  std::function<void()> leave;
  {
    absl::MutexLock lock(&mutex_);
    leave = std::exchange(leave_, nullptr);
  }
  if (leave) leave();
}

void Stopper::CoordinatorRuns(std::function<void()> leave) {
  bool wanted = false;
  {
    absl::MutexLock lock(&mutex_);
    leave_ = std::move(leave);
    wanted = leave_wanted_;
  }
  if (wanted) Leave();
}

void Stopper::CoordinatorEnded() {
  {
    absl::MutexLock lock(&mutex_);
    leave_ = nullptr;
    changed_.Await(mutex_, kLastMessages, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return job_over_ || job_.client == nullptr;
    });
  }
  over_.Cancel();
  stop_call_.Cancel();
}

void Stopper::JobRuns(client::MusterClient* client, const std::string& job_id) {
  absl::MutexLock lock(&mutex_);
  job_ = {client, job_id};
}

void Stopper::JobHasEnded() {
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !calling_; };
  // No later answer of the coordinator is needed.
  stop_call_.Cancel();
  absl::MutexLock lock(&mutex_);
  job_.client = nullptr;
  job_over_ = true;
  changed_.Changed();
  mutex_.Await(absl::Condition(&idle));
}

void Stopper::Run() {
  Job job;
  {
    const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return job_over_ || (stop_wanted_ && job_.client != nullptr);
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&due));
    if (job_over_) return;
    job = job_;
    calling_ = true;
  }
  // A coordinator that has accepted the stop itself ends a job that makes no progress for 30 s. A
  // job that makes progress, for example because it writes a large checkpoint, may take longer.
  // After an error the job may have ended, or the call had no effect, so that nobody stops the job.
  const bool own = coordinator_ == Coordinator::kOwn;
  client::RetryOptions retry{.cancellation = &stop_call_};
  if (own) retry.retry_for = kOwnRetry;
  absl::Status accepted = job.client->Stop(job.id, {.retry = retry}).status();
  const auto job_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return job_over_; };
  while (own && !absl::IsUnavailable(accepted)) {
    {
      absl::MutexLock lock(&mutex_);
      calling_ = false;
      if (changed_.Await(mutex_, kAskAgain, job_over)) return;
      calling_ = job_.client != nullptr;
      if (!calling_) return;
    }
    // A coordinator that cannot write its store any more does not see the job's end.
    accepted = job.client->Stop(job.id, {.retry = retry}).status();
  }
  {
    absl::MutexLock lock(&mutex_);
    calling_ = false;
  }
  if (own) Leave();
  const absl::Duration wait = own || accepted.ok() ? absl::InfiniteDuration() : kStopTimeout;
  absl::MutexLock lock(&mutex_);
  if (changed_.Await(mutex_, wait, job_over)) return;
  at_once_.Cancel();
  over_.Cancel();
}

}  // namespace muster::cli
