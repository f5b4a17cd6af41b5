// The sender of the messages for one receiver, one at a time, on its own thread. A receiver that is
// slow or down delays only its own messages.
#ifndef MUSTER_COORDINATOR_WEBHOOK_SENDER_H_
#define MUSTER_COORDINATOR_WEBHOOK_SENDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/answer.h"
#include "coordinator/webhook/resolver.h"
#include "coordinator/webhook/schedule.h"
#include "coordinator/webhook/settings.h"

namespace muster::webhook {

struct SenderOptions {
  // The receiver's name in messages of the daemon's log.
  std::string receiver;
  Retries retries;
  // The clock, which never goes back. The messages' create_time is from the same clock.
  std::function<absl::Time()> clock;
  // Returns a random number in [0, 1).
  std::function<double()> random;
  // Gets messages that need not be sent any more. Called on the sender's thread, without a lock.
  std::function<void(const std::vector<uint64_t>& numbers)> settled;
  StartThread start_thread = NewThread;
};

// Thread-safe.
class Sender {
 public:
  // RESOURCE_EXHAUSTED if no further thread can be started.
  static absl::StatusOr<std::unique_ptr<Sender>> Start(SenderOptions options,
                                                       std::unique_ptr<Poster> poster);
  // Stops the sender.
  ~Sender();

  // Adds a message. Numbers grow from call to call. Ignored after Stop().
  void Add(const store::DeliveryRow& message);
  void Withdraw(uint64_t number);
  // Ends the thread at once, also while it waits for an answer. Idempotent; one call at a time.
  void Stop();

 private:
  Sender(SenderOptions options, std::unique_ptr<Poster> poster);
  void Loop();
  // Waits for the next message that is due; absent if the sender stops.
  std::optional<store::DeliveryRow> AwaitDue();

  const SenderOptions options_;
  const std::unique_ptr<Poster> poster_;

  absl::Mutex mutex_;
  SteadyCondition changed_;
  Schedule schedule_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

// The senders of all receivers. Thread-safe. Life cycle: Start starts a thread for each receiver,
// Stop() or the destructor ends them.
class Senders {
 public:
  // `clock` and `settled`: as in SenderOptions. Errors: those of Sender::Start.
  static absl::StatusOr<std::unique_ptr<Senders>> Start(
      const Settings& settings, const std::function<absl::Time()>& clock,
      const std::function<void(const std::vector<uint64_t>& numbers)>& settled);

  // Add and Withdraw ignore a receiver that is not among the settings'.
  void Add(const store::DeliveryRow& message);
  void Withdraw(const std::string& receiver, uint64_t number);
  // Stops without waiting for receivers. One call at a time.
  void Stop();

 private:
  Senders() = default;

  // The senders by URL.
  std::map<std::string, std::unique_ptr<Sender>> senders_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_SENDER_H_
