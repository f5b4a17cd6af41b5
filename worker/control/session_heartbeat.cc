#include "worker/control/session_heartbeat.h"

#include <utility>

#include "common/utf8/utf8.h"

namespace muster::control {
namespace {

void Set(const memory::Use& use, v1::MemoryUse* out) {
  out->set_bytes(use.bytes);
  out->set_peak_bytes(use.peak_bytes);
}

v1::MemoryUse* Field(memory::Purpose purpose, v1::RankMemory* report) {
  switch (purpose) {
    case memory::Purpose::kParameters:
      return report->mutable_parameters();
    case memory::Purpose::kGradients:
      return report->mutable_gradients();
    case memory::Purpose::kMoments:
      return report->mutable_moments();
    case memory::Purpose::kBuckets:
      return report->mutable_buckets();
    case memory::Purpose::kActivations:
      return report->mutable_activations();
    case memory::Purpose::kGathered:
      return report->mutable_gathered();
    case memory::Purpose::kOther:
      break;
  }
  return report->mutable_other();
}

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
  for (int i = 0; i < memory::kPurposes; ++i) {
    const auto purpose = static_cast<memory::Purpose>(i);
    Set(usage.of(purpose), Field(purpose, &report));
  }
  report.set_resident_bytes(resident_bytes);
  report.set_reserved_bytes(reserved_bytes);
  return report;
}

}  // namespace muster::control
