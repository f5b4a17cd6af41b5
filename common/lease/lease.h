// How long a process may continue without its coordinator: the holder's side of a lease. Pure: time
// is an argument.
//
// The holder counts from the moment at which it *sent* the last message that the coordinator
// answered (its hello, a heartbeat), and stops `margin` before the end. The coordinator counts from
// the moment at which that message *came*, and waits longer (coordinator/membership/timing.h). So
// the holder has ended before another process replaces it, no matter how long a message was under
// way, and although the two never compare their clocks.
//
// A refused connection counts as an answer: at that moment no coordinator listened, so nobody could
// replace the holder, and a coordinator that starts later first waits for a whole lease. The same
// holds for a coordinator that answers that it cannot write its store: it replaces nobody until it
// can, and then grants a whole lease. Silence does not count as an answer.
#ifndef MUSTER_COMMON_LEASE_LEASE_H_
#define MUSTER_COMMON_LEASE_LEASE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace muster {

// The reason of a coordinator's refusal that counts like a refused connection.
inline constexpr char kStoreTrouble[] = "STORE_TROUBLE";

// The lease as a welcome describes it.
struct LeaseTerms {
  absl::Duration lease;
  absl::Duration margin;
  // How long after the last answer refused connections still count.
  absl::Duration autonomy;
};

class Lease {
 public:
  // A stream was opened at `sent` with a hello, and the coordinator accepted the process.
  void Welcomed(const LeaseTerms& terms, absl::Time sent);
  // The number of a heartbeat that is sent now, from 1 within a stream; 0: there is no stream.
  uint64_t Beat(absl::Time now);
  // The coordinator has received all heartbeats of this stream up to this one.
  void Acked(uint64_t sequence);
  // The stream has ended.
  void Broken();
  // An attempt to connect that began at `begun` was refused: no coordinator listens, or it accepts
  // nobody at present.
  void Refused(absl::Time begun);

  // When the holder must have ended; infinite before the first welcome.
  absl::Time End() const;
  // When the coordinator answered last, without refused connections. The infinite past before the
  // first welcome.
  absl::Time answered() const { return answered_; }
  // What End() would be if no connection had been refused.
  absl::Time WithoutRefusals() const;
  // When half a lease is over without an answer although the stream is open: the connection may be
  // dead, and another one should be tried. Infinite without a stream.
  absl::Time SilentFrom() const;
  const std::optional<LeaseTerms>& terms() const { return terms_; }

 private:
  std::optional<LeaseTerms> terms_;
  bool attached_ = false;
  absl::Time answered_ = absl::InfinitePast();
  absl::Time refused_ = absl::InfinitePast();
  uint64_t newest_ = 0;
  // Heartbeats of this stream without an answer, oldest first.
  std::deque<std::pair<uint64_t, absl::Time>> sent_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_LEASE_LEASE_H_
