// Finds the groups of a new plan that can stay in their memory. The tensors of such a group already
// lie in one flat of the plan before, each at the offset that the new group needs.
//
// A flat is kept or left as a whole. If one tensor has to leave a flat, all groups in this flat get
// new memory. So no flat stays allocated for only a part of its former tensors.
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
    int64_t tensor = -1;   // the index of the tensor with exactly these values; -1: none
    int64_t offset = 0;    // of the member in the group, in elements
    int64_t elements = 0;  // at least 0
  };
  std::vector<Member> members;  // in ascending order of offsets
  int64_t elements = 0;         // with padding
  at::ScalarType type = at::kFloat;
  c10::Device device = at::kCPU;
};

// The treatment of a tensor that is in no group of the new plan.
enum class Unwanted {
  kStays,   // the tensor is still used, and may stay in its memory
  kLeaves,  // its values are moved to other memory, or are not needed any more
};

struct InPlace {
  // The memory of each group, as a view of one of `flats`. Undefined: the group needs new memory.
  std::vector<at::Tensor> groups;
  // Indices of the tensors in no group that lie in a flat that is not kept. Only with
  // Unwanted::kStays.
  std::vector<size_t> displaced;
  // The flats of the plan before that are kept.
  std::vector<at::Tensor> flats;
};

// flats: memory that earlier plans made; each fills its storage, and only `tensors` lie there.
// tensors: contiguous; tensors without elements are ignored. A group with a tensor outside of
// `flats` needs new memory. Pure: reads storages and offsets only.
InPlace FindInPlace(const std::vector<at::Tensor>& flats, const std::vector<at::Tensor>& tensors,
                    const std::vector<WantedGroup>& groups, Unwanted unwanted);

// Returns memory for a group. The padding is zero; the members are uninitialized.
at::Tensor NewFlat(const WantedGroup& group);

// Copies the values of the group's members into `flat`, which NewFlat made, and makes the tensors
// views of `flat`. Every member must have a tensor. A tensor without elements keeps its memory: as
// a view it would keep `flat` allocated after all other tensors have left.
void MoveInto(const at::Tensor& flat, const WantedGroup& group,
              const std::vector<at::Tensor>& tensors);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_IN_PLACE_H_
