#include "worker/control/memory_report.h"

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
