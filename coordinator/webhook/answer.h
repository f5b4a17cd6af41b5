// What a receiver answers to a message, and what that means (docs/how-to/webhook.md). Functions are
// pure.
#ifndef MUSTER_COORDINATOR_WEBHOOK_ANSWER_H_
#define MUSTER_COORDINATOR_WEBHOOK_ANSWER_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/store/store.h"

namespace muster::webhook {

struct Answer {
  // Of HTTP. 0: there was none.
  int status = 0;
  // Without a status: why, for people.
  std::string trouble;
  // When the receiver wants to be asked again.
  std::optional<absl::Duration> retry_after;
};

enum class Meaning {
  kAccepted,
  // The receiver understood the message and does not want it: another try would end in the same
  // way.
  kRefused,
  // To be tried again; messages about other jobs may be accepted.
  kMessageFailed,
  // To be tried again; nothing else that is sent to this receiver now would be accepted, either.
  kReceiverFailed,
};

Meaning MeaningOf(const Answer& answer);

// For people: "answered 503", or Answer::trouble.
std::string Describe(const Answer& answer);

// The value of the header Retry-After: seconds, or a date (RFC 9110, section 10.2.3). Absent: it is
// neither.
std::optional<absl::Duration> ParseRetryAfter(const std::string& value, absl::Time now);

// Posts messages to one receiver.
class Poster {
 public:
  virtual ~Poster() = default;

  // Waits for the answer, but only for a limited time. One call at a time.
  virtual Answer Post(const store::DeliveryRow& message) = 0;
  // Ends the call that is under way, and all later ones, at once. Thread-safe.
  virtual void Abort() = 0;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_ANSWER_H_
