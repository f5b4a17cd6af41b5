// Streams of rows of the store: first the stored rows, page by page, then new rows.
#ifndef MUSTER_COORDINATOR_SERVICE_METRICS_STREAM_H_
#define MUSTER_COORDINATOR_SERVICE_METRICS_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/status/status.h"
#include "coordinator/service/follow.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/job_service.pb.h"

namespace muster::service {

// The number of rows that are read from the store at a time.
inline constexpr size_t kReadAhead = 256;

template <typename T>
class RowStream : public FollowStream<T> {
 public:
  RowStream(Engine* engine, Followers* followers, const std::string& job, Follows by, bool follow)
      : FollowStream<T>(engine, followers, job, std::move(by)), follow_(follow) {}

 protected:
  // Returns the rows after the last page; empty if there are none yet.
  virtual absl::StatusOr<std::deque<T>> ReadPage() = 0;

  absl::StatusOr<bool> Next(T* item) override {
    RETURN_IF_ERROR(FillPage());
    if (page_.empty()) return false;
    *item = std::move(page_.front());
    page_.pop_front();
    return true;
  }
  bool Over() override { return !follow_ || this->job()->terminal(); }
  bool IsLast() override { return FillPage().ok() && page_.empty(); }

 private:
  absl::Status FillPage() {
    if (!page_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(page_, ReadPage());
    return absl::OkStatus();
  }

  const bool follow_;
  std::deque<T> page_;
};

// The position of a reader. It has read the steps before `step`, the validation passes before
// `validation` and the tests before `test`.
struct MetricsPosition {
  uint64_t step = 0;
  uint64_t validation = 0;
  uint64_t test = 0;
};
MetricsPosition StartOf(const v1::StreamMetricsRequest& request);

// Returns the next entries, at most `limit` of each kind, and moves the position to the first entry
// after them. Each pass comes right after the step that it followed, a validation before a test.
// Rows that are stored later at an earlier position are not read. DATA_LOSS: the next row is
// damaged.
absl::StatusOr<std::deque<v1::StepMetrics>> ReadMetrics(store::Store* store,
                                                        const std::string& job_id, size_t limit,
                                                        MetricsPosition* position);

// The stream of StreamMetrics: a job's steps, validation passes and tests in the order of steps.
class MetricsStream : public RowStream<v1::StepMetrics> {
 public:
  MetricsStream(Engine* engine, Followers* followers, const v1::StreamMetricsRequest& request,
                Follows by)
      : RowStream(engine, followers, request.job_id(), std::move(by), request.follow()),
        position_(StartOf(request)) {}

 protected:
  absl::StatusOr<std::deque<v1::StepMetrics>> ReadPage() override {
    return ReadMetrics(&engine().store(), job_id(), kReadAhead, &position_);
  }

 private:
  MetricsPosition position_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_METRICS_STREAM_H_
