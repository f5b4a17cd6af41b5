// The choice of the next message for a receiver, and of its time. Pure: (state, answer, now) ->
// (state, settled messages, reason).
//
// The messages about one job are sent in order: each waits until the message before is settled.
// Messages about different jobs do not wait for each other, except while the receiver itself does
// not work.
#ifndef MUSTER_COORDINATOR_WEBHOOK_SCHEDULE_H_
#define MUSTER_COORDINATOR_WEBHOOK_SCHEDULE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/answer.h"

namespace muster::webhook {

struct Retries {
  // The wait after the first failure. It doubles with each further failure, up to `longest`.
  absl::Duration first = absl::Seconds(1);
  absl::Duration longest = absl::Minutes(10);
  // The longest wait that a receiver can ask for.
  absl::Duration longest_asked_for = absl::Hours(1);
  // The age after which a message that fails is given up.
  absl::Duration give_up_after = absl::Hours(24);
  // The time without success after which all messages older than give_up_after are given up. It
  // allows for a pause of sender and receiver, after which the receiver may work again in a moment.
  absl::Duration give_up_all_after = absl::Hours(1);
};

class Schedule {
 public:
  explicit Schedule(const Retries& retries) : retries_(retries) {}

  // Adds a message. Numbers grow from call to call.
  void Add(store::DeliveryRow message);
  // Removes a message that must not be sent any more. Unknown numbers are ignored.
  void Withdraw(uint64_t number);

  // Returns the message to send now: the longest-waiting message that may be sent; null if there is
  // none.
  const store::DeliveryRow* Due(absl::Time now) const;
  // Returns the time at which the next message may be sent; infinite future if none waits.
  absl::Time NextDue() const;

  struct Result {
    // The numbers of messages that were accepted or given up. The schedule has removed them.
    std::vector<uint64_t> settled;
    // Text for the daemon's log: given-up messages, and the reason why tries fail when it changes.
    // Empty if there is nothing to say.
    std::string say;
  };
  // Takes the answer to a message. `jitter`: a random number in [0, 1), so that many waits do not
  // end at once. A message that was withdrawn meanwhile is ignored.
  Result Take(const store::DeliveryRow& message, const Answer& answer, absl::Time now,
              double jitter);

  size_t size() const;

 private:
  // The number of failed tries in a row, and the time until which the next try waits.
  struct Wait {
    uint32_t failures = 0;
    absl::Time until = absl::InfinitePast();
  };
  // The messages about one job, in order.
  struct JobQueue {
    std::deque<store::DeliveryRow> messages;
    Wait wait;
  };
  // Adds a failure to `wait`; returns the length of the wait.
  absl::Duration PutOff(Wait* wait, const Answer& answer, absl::Time now, double jitter) const;
  // Removes the first message of a line.
  void Remove(std::map<std::string, JobQueue>::iterator queue);
  // Removes all messages that are too old; returns their numbers.
  std::vector<uint64_t> RemoveOld(absl::Time now);

  Retries retries_;
  // The messages by job.
  std::map<std::string, JobQueue> queues_;
  // The wait of the whole receiver.
  Wait wait_;
  // The time since which all tries have failed; absent if the last try did not fail.
  std::optional<absl::Time> fails_since_;
  // The reason of the last try's failure; empty if the last try did not fail.
  std::string trouble_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_SCHEDULE_H_
