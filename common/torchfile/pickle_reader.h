// Reads Python's pickle format, as far as torch.load(weights_only=True) allows it: plain values and
// tensors. Nothing is executed, and the input may be hostile.
#ifndef MUSTER_COMMON_TORCHFILE_PICKLE_READER_H_
#define MUSTER_COMMON_TORCHFILE_PICKLE_READER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "common/torchfile/pickle_document.h"

namespace muster::torchfile {

// INVALID_ARGUMENT: `bytes` are not one whole pickle, or it contains a class, a function or another
// value than the above, which the message names; it is larger than 128 MiB, values are nested
// deeper than 100, or a value contains itself. Needs memory for at most about 200 times `bytes`,
// and for a few times of what PyTorch writes.
absl::StatusOr<PickleDocument> ReadPickle(std::string_view bytes);

}  // namespace muster::torchfile

#endif  // MUSTER_COMMON_TORCHFILE_PICKLE_READER_H_
