// The durations of clients' calls and of accesses to the store, as histograms for Prometheus.
// Thread-safe.
#ifndef MUSTER_COORDINATOR_WEB_LATENCIES_H_
#define MUSTER_COORDINATOR_WEB_LATENCIES_H_

#include <prometheus/histogram.h>

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/call_times.h"
#include "coordinator/store/timed_store.h"
#include "coordinator/web/exposition.h"

namespace muster::web {

class Latencies {
 public:
  void CallEnded(const EndedCall& call);
  void StoreAccessed(store::TimedStore::Access access, absl::Duration duration);
  void AddTo(Exposition* out) const;

 private:
  using Call = std::pair<std::string, absl::StatusCode>;

  mutable absl::Mutex mutex_;
  // The histograms by method and code; each is added at its first call.
  std::map<Call, prometheus::Histogram> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<store::TimedStore::Access, prometheus::Histogram> store_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_LATENCIES_H_
