// Which groups of a plan stay where they are when a plan follows another one: those whose tensors
// already lie in one piece of the earlier plan's memory, each at the place that the group wants.
//
// Memory is kept as a whole or left as a whole: where one tensor has to leave a piece of memory,
// everything in it is laid out anew, so that no piece stays for a part of what it once held.
#ifndef MUSTER_WORKER_PARALLEL_IN_PLACE_H_
#define MUSTER_WORKER_PARALLEL_IN_PLACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::parallel {

// A group of a plan, or one rank's slice of it, in contiguous memory.
struct WantedGroup {
  struct Member {
    int64_t tensor = -1;   // index of the tensor that has the values; -1: none has just these
    int64_t offset = 0;    // where it begins in the group, in elements
    int64_t elements = 0;  // 0 and more
  };
  std::vector<Member> members;  // by rising offset
  int64_t elements = 0;         // with padding
  at::ScalarType type = at::kFloat;
};

// What becomes of a tensor that no group wants.
enum class Unwanted {
  kStays,   // it is used where it is
  kLeaves,  // its values go elsewhere, or nowhere
};

struct InPlace {
  // For each group its memory, a view of one of `flats`; undefined: it has to be laid out anew.
  std::vector<at::Tensor> groups;
  // With Unwanted::kStays: those that no group wants, in memory that is not kept.
  std::vector<size_t> displaced;
  // Of the earlier plan's memory, what is kept.
  std::vector<at::Tensor> flats;
};

// flats: memory that an earlier plan made, each all of its storage. tensors: contiguous; those that
// lie outside of `flats` are in no group's place. Nothing else than `tensors` may lie in `flats`.
// Pure: only addresses are looked at.
InPlace FindInPlace(const std::vector<at::Tensor>& flats, const std::vector<at::Tensor>& tensors,
                    const std::vector<WantedGroup>& groups, Unwanted unwanted);

// Memory for a group. Between its members there are zeros; the members' places hold anything.
at::Tensor NewFlat(const WantedGroup& group);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_IN_PLACE_H_
