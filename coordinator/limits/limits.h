// The limits of one coordinator. A call beyond a limit is refused with a reason that names it, so
// that one client or one job cannot slow down or end the others. docs/limits.md lists them.
#ifndef MUSTER_COORDINATOR_LIMITS_LIMITS_H_
#define MUSTER_COORDINATOR_LIMITS_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace muster {

struct Limits {
  // Also those that have ended.
  size_t jobs = 100000;
  // Jobs that have not ended: each of them is examined whenever slots are assigned.
  size_t open_jobs = 5000;

  // Commands of a job that are not done. A stop and a cancel are always accepted.
  size_t open_commands = 20000;
  // Commands of a job in all: every new process of the job gets the whole log. A stop and a cancel
  // are always accepted.
  size_t commands = 100000;

  size_t request_id_bytes = 128;
  // Kept in memory and in the store until a day after their job is deleted.
  size_t request_ids = 1000000;

  // Streams that follow a job, and calls that wait for an operation of it.
  size_t followers_of_job = 200;
  // The same over all jobs.
  size_t followers = 2000;

  // Files that agents send to clients at a time.
  size_t downloads = 16;

  // A page of a list.
  int page_size = 1000;
  // A page ends with the element that exceeds this size, which is well below the size limit of a
  // message.
  size_t page_bytes = 4 << 20;

  // How long an agent's or a worker's stream may be open without a message.
  int first_message_seconds = 10;
  // Messages of one agent or worker that wait to be applied, as while the store is in trouble.
  int messages_in_line = 16384;
  // Log lines are dropped if more messages wait.
  int log_messages_in_line = 256;
  // How many bytes may wait until one agent or worker reads them.
  size_t outbox_bytes = 64 << 20;
};

// The limits of every coordinator; tests may use others.
inline constexpr Limits kLimits{};

}  // namespace muster

#endif  // MUSTER_COORDINATOR_LIMITS_LIMITS_H_
