// The senders of all receivers.
#ifndef MUSTER_COORDINATOR_WEBHOOK_SENDERS_H_
#define MUSTER_COORDINATOR_WEBHOOK_SENDERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/sender.h"
#include "coordinator/webhook/settings.h"

namespace muster::webhook {

// Thread-safe. Life cycle: Start starts a thread for each receiver, Stop() or the destructor ends
// them.
class Senders {
 public:
  // `clock` and `settled`: as in SenderOptions. Errors: those of Sender::Start.
  static absl::StatusOr<std::unique_ptr<Senders>> Start(
      const Settings& settings, const std::function<absl::Time()>& clock,
      const std::function<void(const std::vector<uint64_t>& numbers)>& settled);

  // `receiver` of both: one of the settings, otherwise it is ignored.
  void Add(const store::DeliveryRow& message);
  void Withdraw(const std::string& receiver, uint64_t number);
  // Does not wait for receivers. One call at a time.
  void Stop();

 private:
  Senders() = default;

  // By URL.
  std::map<std::string, std::unique_ptr<Sender>> senders_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_SENDERS_H_
