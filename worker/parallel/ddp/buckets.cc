#include "worker/parallel/ddp/buckets.h"

#include <utility>

#include "worker/comm/slices.h"

namespace muster::parallel {

std::vector<Bucket> AssignBuckets(const std::vector<int64_t>& elements, int64_t element_bytes,
                                  int world_size, const BucketLimits& limits) {
  std::vector<Bucket> buckets;
  Bucket bucket;
  int64_t bytes = 0;  // of the gradients alone, so that padding does not move the borders
  const auto close = [&] {
    bucket.elements = comm::RoundUp(bucket.elements, comm::kSliceAlignment * world_size);
    buckets.push_back(std::exchange(bucket, {}));
    bytes = 0;
  };
  for (int parameter = static_cast<int>(elements.size()) - 1; parameter >= 0; --parameter) {
    bucket.pieces.push_back({parameter, bucket.elements});
    bucket.elements =
        comm::RoundUp(bucket.elements + elements[parameter], comm::kSliceAlignment);
    bytes += elements[parameter] * element_bytes;
    if (bytes >= (buckets.empty() ? limits.first_bytes : limits.bytes)) close();
  }
  if (!bucket.pieces.empty()) close();
  return buckets;
}

}  // namespace muster::parallel
