// A receiver's answer to a message, and its meaning (docs/how-to/webhook.md). Functions are pure.
#ifndef MUSTER_COORDINATOR_WEBHOOK_ANSWER_H_
#define MUSTER_COORDINATOR_WEBHOOK_ANSWER_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/store/store.h"

namespace muster::webhook {

struct Answer {
  // The HTTP status; 0 if there was no answer.
  int status = 0;
  // The reason why there is no status, for people.
  std::string trouble;
  // The time after which the receiver wants to be asked again.
  std::optional<absl::Duration> retry_after;
};

enum class Meaning {
  kAccepted,
  // The receiver understood the message and does not want it. Another try would end in the same
  // way.
  kRefused,
  // The message must be tried again. Messages about other jobs may be accepted.
  kMessageFailed,
  // The message must be tried again. The receiver would not accept any other message now, either.
  kReceiverFailed,
};

Meaning MeaningOf(const Answer& answer);

// Returns "answered 503", or Answer::trouble, for people.
std::string Describe(const Answer& answer);

// Parses the value of the header Retry-After: seconds, or a date (RFC 9110, section 10.2.3). Absent
// if it is neither.
std::optional<absl::Duration> ParseRetryAfter(const std::string& value, absl::Time now);

// An object that posts messages to one receiver.
class Poster {
 public:
  virtual ~Poster() = default;

  // Posts the message and waits for the answer, for a limited time. One call at a time.
  virtual Answer Post(const store::DeliveryRow& message) = 0;
  // Ends the current call and all later calls at once. Thread-safe.
  virtual void Abort() = 0;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_ANSWER_H_
