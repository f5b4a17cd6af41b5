#include "worker/control/session_heartbeat.h"

#include <iterator>
#include <utility>

#include "common/utf8/utf8.h"

namespace muster::control {
namespace {

void Set(const memory::Use& use, v1::MemoryUse* out) {
  out->set_bytes(use.bytes);
  out->set_peak_bytes(use.peak_bytes);
}

// The fields in the order of memory::Purpose.
constexpr v1::MemoryUse* (v1::RankMemory::*kFields[])() = {
    &v1::RankMemory::mutable_other,       &v1::RankMemory::mutable_parameters,
    &v1::RankMemory::mutable_gradients,   &v1::RankMemory::mutable_moments,
    &v1::RankMemory::mutable_buckets,     &v1::RankMemory::mutable_activations,
    &v1::RankMemory::mutable_gathered,
};
static_assert(std::size(kFields) == memory::kPurposes);

}  // namespace

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

v1::RankMemory MemoryReport(const memory::Usage& usage, uint64_t resident_bytes,
                            uint64_t reserved_bytes) {
  v1::RankMemory report;
  Set(usage.total, report.mutable_total());
  for (size_t i = 0; i < std::size(kFields); ++i) {
    Set(usage.by_purpose[i], (report.*kFields[i])());
  }
  report.set_resident_bytes(resident_bytes);
  report.set_reserved_bytes(reserved_bytes);
  return report;
}

}  // namespace muster::control
