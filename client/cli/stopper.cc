#include "client/cli/stopper.h"

namespace muster::cli {
namespace {

// How long to wait for a job that the coordinator was not able to stop.
constexpr absl::Duration kStopTimeout = absl::Seconds(45);

}  // namespace

Stopper::Stopper(Interrupts* interrupts)
    : thread_([this] { Run(); }), listener_(interrupts, [this](int count) {
        interrupted_.Cancel();
        if (count > 1) {
          at_once_.Cancel();
          stop_call_.Cancel();
        }
        absl::MutexLock lock(&mutex_);
        wanted_ = true;
      }) {}

Stopper::~Stopper() {
  {
    absl::MutexLock lock(&mutex_);
    over_ = true;
  }
  ended_.Changed();
  thread_.join();
}

void Stopper::JobRuns(client::MusterClient* client, const std::string& job_id) {
  absl::MutexLock lock(&mutex_);
  client_ = client;
  job_id_ = job_id;
}

void Stopper::JobHasEnded() {
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !calling_; };
  // Any later answer of the coordinator is not needed.
  stop_call_.Cancel();
  absl::MutexLock lock(&mutex_);
  client_ = nullptr;
  over_ = true;
  ended_.Changed();
  mutex_.Await(absl::Condition(&idle));
}

void Stopper::Run() {
  client::MusterClient* client = nullptr;
  std::string job_id;
  {
    const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return over_ || (wanted_ && client_ != nullptr);
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&due));
    if (over_) return;
    client = client_;
    job_id = job_id_;
    calling_ = true;
  }
  // Once it has accepted this, the coordinator itself ends a job that makes no progress for 30 s. A
  // job that does, for example because it writes a large checkpoint, may take longer. After an
  // error the job may have ended; or the call had no effect, and then nobody stops the job.
  const bool accepted = client->Stop(job_id, {.retry = {.cancellation = &stop_call_}}).ok();
  const absl::Duration wait = accepted ? absl::InfiniteDuration() : kStopTimeout;
  absl::MutexLock lock(&mutex_);
  calling_ = false;
  if (ended_.Await(mutex_, wait,
                   [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return over_; }))
    return;
  at_once_.Cancel();
}

}  // namespace muster::cli
