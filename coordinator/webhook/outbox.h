// The messages about jobs that the receivers of webhooks have not accepted yet. Pure: the cluster
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

// The most bytes of a text in JSON. Longer texts are cut.
inline constexpr size_t kLongestText = 2000;

// A bound above the bytes of every body, whatever the texts of the job are.
inline constexpr size_t kLongestBody = 16 << 10;

// Returns the JSON message about a change of a job's state (docs/how-to/webhook.md). It describes
// the change that brought the job into its present state. `id`: the delivery's id. `former`: absent
// for a new job.
std::string BodyOf(const std::string& id, const jobs::Job& job, std::optional<jobs::State> former,
                   absl::Time now);

struct OutboxOptions {
  // The receivers. Each gets every message. If empty, there are no webhooks, and nothing is stored.
  std::vector<Url> receivers;
  // The most messages that may wait for one receiver. Above it the oldest are dropped.
  size_t most_pending = 10'000;
  // Makes a unique id for a message.
  std::function<std::string()> new_id;
};

class Outbox {
 public:
  // Takes the stored messages, by number. Messages for receivers that are not in
  // `options.receivers` are dropped. The other messages wait to be sent again.
  Outbox(OutboxOptions options, const std::vector<store::DeliveryRow>& stored);

  // Records that the job is known in this state, without a message.
  void Know(const jobs::Job& job);
  // Adds a message for each receiver if the job is new, or if its state has changed since the last
  // call.
  void Observe(const jobs::Job& job, absl::Time now);
  // Records that the job was deleted. Messages about it are still delivered.
  void Forget(const std::string& job_id);
  // Removes a message that the receiver has accepted or that was given up.
  void Settle(uint64_t number);

  struct Withdrawn {
    std::string receiver;
    uint64_t number = 0;
  };
  // The changes since the last call.
  struct Changes {
    // The rows to store, and the numbers of rows to remove.
    std::vector<store::DeliveryRow> added;
    std::vector<uint64_t> removed;
    // The messages to send when `added` is stored, and messages that were stored before the start.
    std::vector<store::DeliveryRow> send;
    // The messages among `removed` that must not be sent any more.
    std::vector<Withdrawn> withdrawn;
    // Lines for the daemon's log.
    std::vector<std::string> say;
  };
  Changes TakeChanges();

  // The number of messages that wait, over all receivers.
  size_t pending() const { return pending_.size(); }

 private:
  // The facts about a waiting message, without its body.
  struct Pending {
    std::string receiver;
    std::string job_id;
  };
  void Add(const store::DeliveryRow& row);
  void DropOldest(const Url& receiver, const std::string& shown);

  const OutboxOptions options_;
  // The name of each receiver for people.
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
