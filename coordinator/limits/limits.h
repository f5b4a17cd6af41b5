// What one coordinator takes on. Beyond a limit a call is refused by name, so that nothing one
// client or one job does slows down or ends the others. docs/limits.md lists them.
#ifndef MUSTER_COORDINATOR_LIMITS_LIMITS_H_
#define MUSTER_COORDINATOR_LIMITS_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace muster {

struct Limits {
  // Also those that have ended.
  size_t jobs = 100000;
  // Those that have not: each of them is looked at whenever slots are given out.
  size_t open_jobs = 5000;

  // Commands of a job that are not done. A stop and a cancel are always taken.
  size_t open_commands = 20000;
  // Commands of a job in all: every new process of the job gets the whole log. A stop and a cancel
  // are always taken.
  size_t commands = 100000;

  size_t request_id_bytes = 128;
  // Kept in memory and in the store until a day after their job is deleted.
  size_t request_ids = 1000000;

  // Streams that follow a job, and calls that wait for an operation of it.
  size_t followers_of_job = 200;
  // The same over all jobs.
  size_t followers = 2000;

  // A page of a list.
  int page_size = 1000;
  // A page ends with the element that makes it larger: well below what a message may hold.
  size_t page_bytes = 4 << 20;

  // Messages of one agent or worker that wait to be applied, as while the store is in trouble.
  int messages_in_line = 16384;
  // Log lines are left out where more messages wait.
  int log_messages_in_line = 256;
  // What may wait to be read by one agent or worker.
  size_t outbox_bytes = 64 << 20;
};

// Those of every coordinator; tests may have others.
inline constexpr Limits kLimits{};

}  // namespace muster

#endif  // MUSTER_COORDINATOR_LIMITS_LIMITS_H_
