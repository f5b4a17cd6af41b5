// Posts one message to one receiver.
#ifndef MUSTER_COORDINATOR_WEBHOOK_POSTER_H_
#define MUSTER_COORDINATOR_WEBHOOK_POSTER_H_

#include "coordinator/store/store.h"
#include "coordinator/webhook/answer.h"

namespace muster::webhook {

class Poster {
 public:
  virtual ~Poster() = default;

  // Waits for the answer, but only for a limited time. One call at a time.
  virtual Answer Post(const store::DeliveryRow& message) = 0;
  // Ends the call that is under way, and all later ones, at once. Thread-safe.
  virtual void Abort() = 0;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_POSTER_H_
