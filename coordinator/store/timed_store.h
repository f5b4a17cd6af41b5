// A store that reports the time of each access.
#ifndef MUSTER_COORDINATOR_STORE_TIMED_STORE_H_
#define MUSTER_COORDINATOR_STORE_TIMED_STORE_H_

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/steady/now.h"
#include "coordinator/store/store.h"

namespace muster::store {

// A store that passes each call on to another store, which outlives this one.
class TimedStore : public Store {
 public:
  enum class Access { kCommit, kRead };
  // Gets the time of an access, on the thread of the access, also if it fails. Must not wait.
  using Told = std::function<void(Access access, absl::Duration duration)>;

  TimedStore(Store* store, Told told) : store_(store), told_(std::move(told)) {}

  absl::Status Commit(const Batch& batch) override {
    return Time(Access::kCommit, [&] { return store_->Commit(batch); });
  }
  bool ReleaseReserve() override { return store_->ReleaseReserve(); }
  bool RestoreReserve() override { return store_->RestoreReserve(); }
  bool OpenedShortOfRoom() const override { return store_->OpenedShortOfRoom(); }
  // Not timed, because the time depends on the size of the database.
  absl::StatusOr<std::string> Backup() override { return store_->Backup(); }
  absl::StatusOr<Image> Load() override { return store_->Load(); }
  absl::StatusOr<std::vector<MetricsRow>> ReadMetrics(MetricsOf of, const std::string& job_id,
                                                      uint64_t from_step, size_t limit) override {
    return Time(Access::kRead, [&] { return store_->ReadMetrics(of, job_id, from_step, limit); });
  }
  absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id, uint64_t after_sequence,
                                               std::optional<uint32_t> rank,
                                               size_t limit) override {
    return Time(Access::kRead,
                [&] { return store_->ReadLogs(job_id, after_sequence, rank, limit); });
  }

 private:
  template <typename Call>
  std::invoke_result_t<Call> Time(Access access, const Call& call) {
    const absl::Time begun = SteadyNow();
    auto result = call();
    told_(access, SteadyNow() - begun);
    return result;
  }

  Store* const store_;
  const Told told_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_TIMED_STORE_H_
