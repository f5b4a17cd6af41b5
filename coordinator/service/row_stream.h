// A stream of rows of the store: first the stored rows, page by page, then new rows as they come.
#ifndef MUSTER_COORDINATOR_SERVICE_ROW_STREAM_H_
#define MUSTER_COORDINATOR_SERVICE_ROW_STREAM_H_

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/status/status.h"
#include "coordinator/service/follow.h"

namespace muster::service {

// The number of rows that are read from the store at a time.
inline constexpr size_t kReadAhead = 256;

template <typename T>
class RowStream : public FollowStream<T> {
 public:
  RowStream(Engine* engine, Followers* followers, const std::string& job, Follows by, bool follow)
      : FollowStream<T>(engine, followers, job, std::move(by)), follow_(follow) {}

 protected:
  // The rows after the last page; empty if there are none yet.
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

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_ROW_STREAM_H_
