// Flat groups: which parameter lies where in one contiguous buffer that is cut into one slice per
// rank. Pure.
//
// A group is a bucket of gradients (ddp, sharded_ddp) or a part of an FSDP unit. Every parameter
// begins at a multiple of kAlignment elements, and a group is padded to a multiple of kAlignment *
// world size, so all slices of a group are of one size, begin at multiples of kAlignment, and may
// be padding only. Why: fused optimizer kernels give the same bits for a piece of a parameter as
// for the whole only when it begins there. After ZeRO (S. Rajbhandari et al., 2020) and PyTorch's
// DistributedDataParallel (reverse order, size limits).
#ifndef MUSTER_WORKER_LAYOUT_GROUPS_H_
#define MUSTER_WORKER_LAYOUT_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/layout/placement.h"

namespace muster::layout {

inline constexpr int64_t kAlignment = 16;  // elements

enum class ElementType { kFloat32, kFloat64, kInt64 };
int64_t ElementBytes(ElementType type);

// A parameter as a layout sees it.
struct ParameterSpec {
  std::string name;
  int64_t elements = 0;  // 0 and more
  ElementType type = ElementType::kFloat32;
  bool trainable = true;
};

struct Group {
  struct Member {
    int64_t parameter = 0;  // index in the list of specs
    int64_t offset = 0;     // where it begins in the group: elements, a multiple of kAlignment
    friend bool operator==(const Member&, const Member&) = default;
  };
  std::vector<Member> members;  // by rising offset
  int64_t elements = 0;         // with padding
  ElementType type = ElementType::kFloat32;
  friend bool operator==(const Group&, const Group&) = default;
};

// The parameters (indices of `specs`, all of one type) one after the other, padded for `world_size`
// slices.
Group MakeGroup(const std::vector<ParameterSpec>& specs, const std::vector<int64_t>& parameters,
                int world_size);

struct BucketLimits {
  // A bucket is closed once its parameters have so many bytes, the first one of each type already
  // at first_bytes.
  int64_t first_bytes = 1 << 20;
  int64_t bytes = 4 << 20;
};

// Buckets for gradients: the trainable parameters, each in one bucket, filled in reverse order of
// `specs` (forward order), which is about the order in which backward gives gradients; one element
// type per bucket. Ordered by when backward is expected to complete them.
std::vector<Group> AssignBuckets(const std::vector<ParameterSpec>& specs, int world_size,
                                 const BucketLimits& limits);

// Elements of the slice of every rank.
int64_t SliceElements(const Group& group, int world_size);

// What of which parameter lies in the slice of `rank`; Range::offset counts from the begin of that
// slice. By rising offset; empty where the slice is padding only.
std::vector<Range> RangesOf(const Group& group, const std::vector<ParameterSpec>& specs, int rank,
                            int world_size);

// Who has what when each rank holds its slices of all groups, end to end in the order of the
// groups. Parameters in no group are nowhere.
Placement Sharded(const std::vector<Group>& groups, const std::vector<ParameterSpec>& specs,
                  int world_size);

// Hash of all of it: specs, groups, world size. The same on every machine and in every build;
// differs (but for the odds of 64 bits) when anything differs.
uint64_t Fingerprint(const std::vector<Group>& groups, const std::vector<ParameterSpec>& specs,
                     int world_size);

}  // namespace muster::layout

#endif  // MUSTER_WORKER_LAYOUT_GROUPS_H_
