// How the state is shared out among the ranks that write it. Pure.
#ifndef MUSTER_WORKER_CHECKPOINT_CUT_H_
#define MUSTER_WORKER_CHECKPOINT_CUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::checkpoint {

// Elements [begin, end) of the flattened tensor number `tensor` of the state.
struct Cut {
  size_t tensor = 0;
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// Cuts the concatenation of tensors with these numbers of elements into `parts` nearly even parts
// at multiples of 16 elements; part r is the r-th rank's. Every element is in exactly one part, a
// tensor is at most once in a part, and a tensor without elements is an empty cut somewhere.
std::vector<std::vector<Cut>> CutEvenly(const std::vector<int64_t>& elements, int64_t parts);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_CUT_H_
