// Flat groups: the positions of parameters in a contiguous buffer with a slice for each rank. Pure.
//
// A group is a bucket of gradients (ddp, sharded_ddp) or a part of an FSDP unit. Every parameter
// begins at a multiple of kAlignment elements, and a group is padded to a multiple of kAlignment *
// world size. So all slices of a group have one size, begin at multiples of kAlignment, and may
// contain padding only. The reason: only if a piece of a parameter begins at such a multiple, fused
// optimizer kernels give the same bits as for the whole parameter. After ZeRO (S. Rajbhandari et
// al., 2020) and PyTorch's DistributedDataParallel (reverse order, size limits).
#ifndef MUSTER_WORKER_LAYOUT_GROUPS_H_
#define MUSTER_WORKER_LAYOUT_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/sharding/placement.h"

namespace muster::layout {

inline constexpr int64_t kAlignment = 16;  // elements

enum class ElementType { kFloat32, kFloat64, kInt64 };
int64_t ElementBytes(ElementType type);

// The properties of a parameter on which a layout depends.
struct ParameterSpec {
  std::string name;
  int64_t elements = 0;  // 0 and more
  ElementType type = ElementType::kFloat32;
  bool trainable = true;
};

struct Group {
  struct Member {
    int64_t parameter = 0;  // index in the list of specs
    int64_t offset = 0;     // place in the group, in elements: a multiple of kAlignment
    friend bool operator==(const Member&, const Member&) = default;
  };
  std::vector<Member> members;  // by rising offset
  int64_t elements = 0;         // with padding
  ElementType type = ElementType::kFloat32;
  friend bool operator==(const Group&, const Group&) = default;
};

// Makes a group of these parameters (indices of `specs`, all of one type), in this order, padded
// for `world_size` slices.
Group MakeGroup(const std::vector<ParameterSpec>& specs, const std::vector<int64_t>& parameters,
                int world_size);

struct BucketLimits {
  // The size in bytes at which a bucket is closed. The first bucket of each type is already closed
  // at first_bytes.
  int64_t first_bytes = 1 << 20;
  int64_t bytes = 4 << 20;
};

// Returns buckets for gradients. Each trainable parameter is in one bucket, and a bucket has one
// element type. The buckets are filled in reverse order of `specs` (forward order), which is about
// the order in which backward gives gradients. They are ordered by the expected time at which
// backward completes them.
std::vector<Group> AssignBuckets(const std::vector<ParameterSpec>& specs, int world_size,
                                 const BucketLimits& limits);

// The number of elements in the slice of each rank.
int64_t SliceElements(const Group& group, int world_size);

// The ranges of parameters that are in the slice of `rank`. Range::offset counts from the beginning
// of the slice. Ordered by offset; empty if the slice is only padding.
std::vector<sharding::Range> RangesOf(const Group& group, const std::vector<ParameterSpec>& specs,
                                      int rank, int world_size);

// The placement in which each rank holds its slices of all groups, in the order of the groups. No
// rank holds a parameter that is in no group.
sharding::Placement Sharded(const std::vector<Group>& groups,
                            const std::vector<ParameterSpec>& specs, int world_size);

// A hash of the whole layout: specs, groups, world size. It is the same on every machine and in
// every build. Different layouts have different hashes, except with a probability of 2^-64.
uint64_t Fingerprint(const std::vector<Group>& groups, const std::vector<ParameterSpec>& specs,
                     int world_size);

}  // namespace muster::layout

#endif  // MUSTER_WORKER_LAYOUT_GROUPS_H_
