// How the values of a pickle contain one another. Pure.
#ifndef MUSTER_COMMON_TORCHFILE_PICKLE_NESTING_H_
#define MUSTER_COMMON_TORCHFILE_PICKLE_NESTING_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "common/torchfile/pickle_document.h"

namespace muster::torchfile {

// The root and all nodes that it contains, each once. INVALID_ARGUMENT: a value contains itself, or
// values are nested deeper than 100.
absl::StatusOr<std::vector<size_t>> ReachableNodes(const PickleDocument& document);

}  // namespace muster::torchfile

#endif  // MUSTER_COMMON_TORCHFILE_PICKLE_NESTING_H_
