// Which messages about jobs the receivers of webhooks have not accepted yet. Pure: the cluster
// reports each change of a job, and stores the changes of the outbox in the same transaction.
#ifndef MUSTER_COORDINATOR_WEBHOOK_OUTBOX_H_
#define MUSTER_COORDINATOR_WEBHOOK_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/url.h"

namespace muster::webhook {

// Texts that need more bytes in JSON are cut.
inline constexpr size_t kLongestText = 2000;

// Less than this many bytes, whatever the texts of the job are.
inline constexpr size_t kLongestBody = 16 << 10;

// What is posted about a change of a job's state (docs/how-to/webhook.md): the JSON of the change
// that brought the job into its present state. `id`: of the delivery. `former`: absent for a new
// job.
std::string BodyOf(const std::string& id, const jobs::Job& job, std::optional<jobs::State> former,
                   absl::Time now);

struct OutboxOptions {
  // Each of them gets every message. Empty: there are no webhooks, and nothing is stored.
  std::vector<Url> receivers;
  // How many messages may wait for one receiver; beyond it the oldest are dropped.
  size_t most_pending = 10'000;
  // Makes a unique id for a message.
  std::function<std::string()> new_id;
};

class Outbox {
 public:
  // `stored`: by number. Messages for receivers that are not among `options.receivers` are dropped;
  // the others wait to be sent again.
  Outbox(OutboxOptions options, const std::vector<store::DeliveryRow>& stored);

  // The job is known in this state; there is no message about it.
  void Know(const jobs::Job& job);
  // The job may have changed. If its state is another one than at the last call, or if the job is
  // new, each receiver gets a message.
  void Observe(const jobs::Job& job, absl::Time now);
  // The job was deleted. Messages about it are still delivered.
  void Forget(const std::string& job_id);
  // The receiver has accepted the message, or it was given up.
  void Settle(uint64_t number);

  struct Withdrawn {
    std::string receiver;
    uint64_t number = 0;
  };
  // What changed since the last call.
  struct Changes {
    // To be stored.
    std::vector<store::DeliveryRow> added;
    std::vector<uint64_t> removed;
    // To be sent once `added` is stored: also those that were stored before the start.
    std::vector<store::DeliveryRow> send;
    // Those among `removed` that must not be sent any more.
    std::vector<Withdrawn> withdrawn;
    // For the daemon's log.
    std::vector<std::string> say;
  };
  Changes TakeChanges();

  // How many messages wait for all receivers.
  size_t pending() const { return pending_.size(); }

 private:
  // What is remembered of a message: not its body.
  struct Pending {
    std::string receiver;
    std::string job_id;
  };
  void Add(const store::DeliveryRow& row);
  void DropOldest(const Url& receiver, const std::string& shown);

  const OutboxOptions options_;
  // For people: of each receiver.
  const std::vector<std::string> shown_;
  uint64_t newest_ = 0;
  std::map<std::string, jobs::State> known_;
  std::map<uint64_t, Pending> pending_;
  // The numbers of pending_ by receiver, in order.
  std::map<std::string, std::set<uint64_t>> of_receiver_;
  Changes changes_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_OUTBOX_H_
