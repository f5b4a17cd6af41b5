#include "worker/control/session_heartbeat.h"

#include <utility>

#include "common/utf8/utf8.h"

namespace muster::control {

SessionHeartbeat::SessionHeartbeat(Clock now) : now_(std::move(now)) {}

void SessionHeartbeat::AddTo(v1::WorkerHeartbeat* heartbeat) {
  heartbeat->set_activity(activity_.count());
  const comm::FlightRecorder::Flight flight = flight_.Read();
  heartbeat->set_collectives_begun(flight.begun);
  heartbeat->set_collectives_ended(flight.ended);
  for (const auto& record : flight.newest) {
    v1::CollectiveRecord& added = *heartbeat->add_collectives();
    added.set_sequence(record.number);
    added.set_name(ValidUtf8(record.name));
    added.set_ended(record.ended);
    added.set_communicator(static_cast<uint32_t>(record.channel));
    added.set_communicator_sequence(record.of_channel);
  }
  if (const checkpoint::Writing::Now writing = writing_.Read(); writing.total > 0) {
    heartbeat->mutable_writing()->set_command(static_cast<uint64_t>(writing.command));
    heartbeat->mutable_writing()->set_total_bytes(writing.total);
    heartbeat->mutable_writing()->set_written_bytes(writing.written);
  }
  told_ = now_();
}

void SessionHeartbeat::WatchedFor(absl::Duration lease) {
  lease_ = absl::ToChronoNanoseconds(lease);
}

bool SessionHeartbeat::Watched() const { return now_() - told_.load() < lease_.load(); }

}  // namespace muster::control
