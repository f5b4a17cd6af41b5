// Which message a receiver gets next, and when. Pure: (state, answer, now) -> (state, what is
// settled, reason).
//
// The messages about one job are sent in their order: each of them waits until the one before it
// is settled. Messages about different jobs do not wait for each other, except while the receiver
// itself does not work.
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
  // After the first failure; it doubles with each further one.
  absl::Duration first = absl::Seconds(1);
  absl::Duration longest = absl::Minutes(10);
  // A receiver that asks for more time than this does not get it.
  absl::Duration longest_asked_for = absl::Hours(1);
  // A message that is older when it fails is given up.
  absl::Duration give_up_after = absl::Hours(24);
  // All that are older are given up once the receiver has failed for so long: not before, because
  // it may only be late after a pause of both, and works again in a moment.
  absl::Duration give_up_all_after = absl::Hours(1);
};

class Schedule {
 public:
  explicit Schedule(const Retries& retries) : retries_(retries) {}

  // Numbers grow from call to call.
  void Add(store::DeliveryRow message);
  // It is not to be sent any more. Unknown numbers are ignored.
  void Withdraw(uint64_t number);

  // The message to send now: of those that may be sent the one that waits longest. Null: none.
  const store::DeliveryRow* Due(absl::Time now) const;
  // When the next one may be sent. Infinite future: none waits.
  absl::Time NextDue() const;

  struct Result {
    // The numbers of messages that are accepted or given up: they are not in the schedule any more.
    std::vector<uint64_t> settled;
    // For the daemon's log: messages that are given up, and the reason for which tries fail, when
    // it changes. Empty: nothing to say.
    std::string say;
  };
  // `jitter`: a random number in [0, 1), so that many waits do not end at once. A message that was
  // withdrawn meanwhile is ignored.
  Result Take(const store::DeliveryRow& message, const Answer& answer, absl::Time now,
              double jitter);

  size_t size() const;

 private:
  // How often tries have failed in a row, and until when the next one waits.
  struct Wait {
    uint32_t failures = 0;
    absl::Time until = absl::InfinitePast();
  };
  // The messages about one job, in order.
  struct Line {
    std::deque<store::DeliveryRow> messages;
    Wait wait;
  };
  // Makes `wait` one failure longer; returns how long it is.
  absl::Duration PutOff(Wait* wait, const Answer& answer, absl::Time now, double jitter) const;
  // Removes the first message of a line.
  void Remove(std::map<std::string, Line>::iterator line);
  // Removes all messages that are too old; returns their numbers.
  std::vector<uint64_t> RemoveOld(absl::Time now);

  Retries retries_;
  // By job.
  std::map<std::string, Line> lines_;
  // Of the receiver.
  Wait wait_;
  // Since when it has failed without a break; absent: it did not fail at the last try.
  std::optional<absl::Time> fails_since_;
  // Why the last try failed; empty: it did not.
  std::string trouble_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_SCHEDULE_H_
