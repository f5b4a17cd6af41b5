#include "worker/train/session/opened.h"

#include <thread>

#include "absl/time/time.h"
#include "worker/comm/flight/recorded_communicator.h"

namespace muster::train {
namespace {

// Returns `parts` with communicators that record their collectives. `own` owns these communicators.
SessionParts Recorded(SessionParts parts, comm::FlightRecorder* flight,
                      std::vector<std::unique_ptr<comm::Communicator>>* own) {
  const auto record = [&](comm::Communicator*& ranks, size_t channel) {
    ranks = own->emplace_back(comm::Recorded(ranks, flight, channel)).get();
  };
  record(parts.control, 0);
  record(parts.gradients, 1);
  record(parts.parameters, 2);
  record(parts.files, comm::FlightRecorder::kBackground);
  return parts;
}

}  // namespace

Opened::Opened(const Identity& identity, const Job& job, const SessionParts& given)
    : identity(identity),
      job(job),
      flight(given.flight != nullptr ? given.flight : &own_flight),
      profile(job.profile, identity),
      parts(profile.Trace(Recorded(given, flight, &recorded))),
      reports(identity.rank, given.events, &state),
      attempts(given.save_retry, &reports,
               [](absl::Duration pause) {
                 std::this_thread::sleep_for(absl::ToChronoMilliseconds(pause));
               }),
      writing(given.writing != nullptr ? given.writing : &own_writing),
      disk(writing) {}

}  // namespace muster::train
