#include "coordinator/web/latencies.h"

#include "absl/strings/strip.h"
#include "common/status/code_name.h"

namespace muster::web {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// The bounds in seconds. A call that changes something waits for the store.
const Buckets& Bounds() {
  static const auto* const kBounds =
      new Buckets{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
  return *kBounds;
}

}  // namespace

void Latencies::CallEnded(const EndedCall& call) {
  absl::MutexLock lock(&mutex_);
  calls_.try_emplace({call.method, call.code}, Bounds())
      .first->second.Observe(absl::ToDoubleSeconds(call.duration));
}

void Latencies::StoreAccessed(store::TimedStore::Access access, absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  store_.try_emplace(access, Bounds()).first->second.Observe(absl::ToDoubleSeconds(duration));
}

void Latencies::AddTo(Exposition* out) const {
  Metric calls = out->Histogram(
      "muster_rpc_duration_seconds",
      "How long calls of musterd's services took, by method and by the code of their status. Calls "
      "that stream, and calls that were refused before they began, are not counted.");
  Metric accesses = out->Histogram(
      "muster_store_duration_seconds",
      "How long accesses to musterd's database took: commits of changes, also those that failed, "
      "and reads of metrics and logs.");
  absl::MutexLock lock(&mutex_);
  for (const auto& [call, histogram] : calls_) {
    calls.Set({{"method", std::string(absl::StripPrefix(call.first, "/"))},
               {"code", CodeName(call.second)}},
              histogram.Collect());
  }
  for (const auto& [access, histogram] : store_) {
    const bool commit = access == store::TimedStore::Access::kCommit;
    accesses.Set({{"access", commit ? "commit" : "read"}}, histogram.Collect());
  }
}

}  // namespace muster::web
