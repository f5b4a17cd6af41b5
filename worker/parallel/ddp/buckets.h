// Which parameter's gradient goes where: pure.
//
// Buckets are filled in reverse forward order, because that is about the order in which backward gives
// gradients; the first bucket is small, so that reduction starts early. A bucket is closed once it has
// reached its size, as in PyTorch.
#ifndef MUSTER_WORKER_PARALLEL_DDP_BUCKETS_H_
#define MUSTER_WORKER_PARALLEL_DDP_BUCKETS_H_

#include <cstdint>
#include <vector>

namespace muster::parallel {

struct BucketLimits {
  int64_t first_bytes = 1 << 20;
  int64_t bytes = 25 << 20;
};

struct Bucket {
  struct Piece {
    int parameter = 0;   // index in forward order
    int64_t offset = 0;  // elements, a multiple of comm::kSliceAlignment
  };
  std::vector<Piece> pieces;  // in reverse forward order
  int64_t elements = 0;       // with padding: a multiple of comm::kSliceAlignment * world size
};

// elements: of each parameter, in forward order. Every parameter is in exactly one bucket.
std::vector<Bucket> AssignBuckets(const std::vector<int64_t>& elements, int64_t element_bytes,
                                  int world_size, const BucketLimits& limits);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_DDP_BUCKETS_H_
