// RankOrderedSum for the tensor types of one operation.
#ifndef MUSTER_WORKER_COMM_TYPED_SUM_H_
#define MUSTER_WORKER_COMM_TYPED_SUM_H_

#include <cstdint>
#include <vector>

#include "worker/comm/operation.h"

namespace muster::comm {

// The ranks' contributions, in rank order, as elements of the spec's input (all-reduce: its
// output); the destination as elements of its output. A source may be the destination if their
// types are the same.
void TypedSum(const OperationSpec& spec, const std::vector<const void*>& sources, void* destination,
              int64_t elements);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_TYPED_SUM_H_
