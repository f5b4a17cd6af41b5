// How long a process may go on without its coordinator: the holder's side of a lease. Pure: time is
// an argument.
//
// The holder counts from the moment at which it *sent* the last message that the coordinator
// answered (its hello, a heartbeat), and stops `margin` before the end. The coordinator counts from
// the moment at which that message *came*, and waits longer (coordinator/membership/timing.h). So
// who holds has ended before anybody takes its place, however long a message was under way and
// although the two never compare their clocks.
//
// A refused connection counts as answered: at that moment nobody listened, so nobody gives away
// what is held, and a coordinator that starts later waits for a whole lease first. The same holds
// of a coordinator that says that it cannot write its store at present: it gives nothing away until
// it can, and grants a whole lease then. Silence does not count.
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

// What a welcome says of it.
struct LeaseTerms {
  absl::Duration lease;
  // Absent: an older coordinator, which acknowledges no heartbeat; the lease is then counted from
  // the break of the stream.
  std::optional<absl::Duration> margin;
  // For so long after the last answer refused connections count.
  absl::Duration autonomy;
};

class Lease {
 public:
  // A stream was opened at `sent` with a hello, and the coordinator took the process in.
  void Welcomed(const LeaseTerms& terms, absl::Time sent);
  // The number of a heartbeat that is sent now, from 1 within a stream; 0: this coordinator
  // acknowledges none.
  uint64_t Beat(absl::Time now);
  // All heartbeats of this stream up to this one came.
  void Acked(uint64_t sequence);
  // The stream is over.
  void Broken(absl::Time now);
  // An attempt to connect that was begun at `begun` was refused: nobody listens, or nobody is taken
  // in at present.
  void Refused(absl::Time begun);

  // When whatever is held has to be given up; infinite before the first welcome, and with an older
  // coordinator while its stream stands.
  absl::Time End() const;
  // When the coordinator answered last; a refusal is no answer. The infinite past before the first
  // welcome.
  absl::Time answered() const { return answered_; }
  // The same as if no connection had been refused.
  absl::Time WithoutRefusals() const;
  // When half a lease is over without an answer although the stream stands: the connection may be
  // dead, and another one should be tried. Infinite without a stream.
  absl::Time SilentFrom() const;
  const std::optional<LeaseTerms>& terms() const { return terms_; }

 private:
  std::optional<LeaseTerms> terms_;
  bool attached_ = false;
  absl::Time answered_ = absl::InfinitePast();
  absl::Time refused_ = absl::InfinitePast();
  absl::Time broken_ = absl::InfiniteFuture();
  uint64_t newest_ = 0;
  // Heartbeats of this stream without an answer, oldest first.
  std::deque<std::pair<uint64_t, absl::Time>> sent_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_LEASE_LEASE_H_
