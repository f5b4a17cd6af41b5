// The holder's side of a lease: how long a process may continue without its coordinator. Pure: time
// is an argument.
//
// The holder counts from the time at which it *sent* the last answered message (its hello, a
// heartbeat), and stops `margin` before the end. The coordinator counts from the time at which that
// message *came*, and waits longer (coordinator/membership/timing.h). So the holder has ended
// before another process replaces it, however long the message was under way. Neither side compares
// the other's clock with its own.
//
// A refused connection counts as an answer: no coordinator listened at that time, so nobody could
// replace the holder. A coordinator that starts later first waits for a whole lease. An answer that
// the store cannot be written counts in the same way. Such a coordinator replaces nobody until it
// can write, and then grants a whole lease. Silence does not count as an answer.
#ifndef MUSTER_COMMON_LEASE_LEASE_H_
#define MUSTER_COMMON_LEASE_LEASE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace muster {

// The reason of a coordinator's refusal that counts as a refused connection.
inline constexpr char kStoreTrouble[] = "STORE_TROUBLE";

// The terms of the lease in a welcome.
struct LeaseTerms {
  absl::Duration lease;
  absl::Duration margin;
  // The time after the last answer for which refused connections still count.
  absl::Duration autonomy;
};

class Lease {
 public:
  // Notes that the coordinator accepted the process, after a hello at `sent` had opened a stream.
  void Welcomed(const LeaseTerms& terms, absl::Time sent);
  // Returns the number of the heartbeat that is sent now, from 1 within a stream. 0: there is no
  // stream.
  uint64_t Beat(absl::Time now);
  // Notes that the coordinator has received the heartbeats of this stream up to this number.
  void Acked(uint64_t sequence);
  // Notes that the stream has ended.
  void Broken();
  // Notes that an attempt to connect, which began at `begun`, was refused: no coordinator listens,
  // or it accepts nobody at present.
  void Refused(absl::Time begun);

  // The time at which the holder must have ended; infinite before the first welcome.
  absl::Time End() const;
  // The time of the last answer of the coordinator, without refused connections. The infinite past
  // before the first welcome.
  absl::Time answered() const { return answered_; }
  // The value that End() would have without refused connections.
  absl::Time WithoutRefusals() const;
  // The time at which half a lease has passed without an answer on an open stream. The connection
  // may be dead, and the holder should try another one. Infinite without a stream.
  absl::Time SilentFrom() const;
  const std::optional<LeaseTerms>& terms() const { return terms_; }

 private:
  std::optional<LeaseTerms> terms_;
  bool attached_ = false;
  absl::Time answered_ = absl::InfinitePast();
  absl::Time refused_ = absl::InfinitePast();
  uint64_t newest_ = 0;
  // The heartbeats of this stream without an answer, oldest first.
  std::deque<std::pair<uint64_t, absl::Time>> sent_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_LEASE_LEASE_H_
