#include "worker/train/session/opened.h"

#include <thread>

#include "absl/time/time.h"
#include "worker/comm/flight/recorded_communicator.h"

namespace muster::train {

RecordedRanks::RecordedRanks(const SessionParts& parts)
    : flight_(parts.flight != nullptr ? parts.flight : &own_),
      control_(comm::Recorded(parts.control, flight_, 0)),
      gradients_(comm::Recorded(parts.gradients, flight_, 1)),
      parameters_(comm::Recorded(parts.parameters, flight_, 2)),
      files_(comm::Recorded(parts.files, flight_, comm::FlightRecorder::kBackground)) {}

SessionParts RecordedRanks::In(SessionParts parts) const {
  parts.control = control_.get();
  parts.gradients = gradients_.get();
  parts.parameters = parameters_.get();
  parts.files = files_.get();
  return parts;
}

Opened::Opened(const Identity& identity, const Job& job, const SessionParts& given)
    : identity(identity),
      job(job),
      ranks(given),
      profile(job.profile, identity),
      parts(profile.Trace(ranks.In(given))),
      reports(identity.rank, given.events, &state),
      attempts(given.save_retry, &reports,
               [](absl::Duration pause) {
                 std::this_thread::sleep_for(absl::ToChronoMilliseconds(pause));
               }),
      writing(given.writing != nullptr ? given.writing : &own_writing),
      disk(writing) {}

}  // namespace muster::train
