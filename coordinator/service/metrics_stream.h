// StreamMetrics: a job's steps, validation passes and tests in the order of steps.
#ifndef MUSTER_COORDINATOR_SERVICE_METRICS_STREAM_H_
#define MUSTER_COORDINATOR_SERVICE_METRICS_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/service/row_stream.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/job_service.pb.h"

namespace muster::service {

// Where a reader continues: it has read the steps before `step`, the validation passes before
// `validation` and the tests before `test`.
struct MetricsPosition {
  uint64_t step = 0;
  uint64_t validation = 0;
  uint64_t test = 0;
};
MetricsPosition StartOf(const v1::StreamMetricsRequest& request);

// The next entries, at most `limit` of each kind; moves the position to the first entry after them.
// Each pass comes right after the step that it followed, a validation before a test. Rows that are
// stored later, but lie before the position, are not read any more. DATA_LOSS: the next row is
// damaged.
absl::StatusOr<std::deque<v1::StepMetrics>> ReadMetrics(store::Store* store,
                                                        const std::string& job_id, size_t limit,
                                                        MetricsPosition* position);

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
