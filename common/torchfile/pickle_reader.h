// Reads Python's pickle format, as far as torch.load(weights_only=True) allows: plain values and
// tensors. Executes nothing; the input may be hostile.
#ifndef MUSTER_COMMON_TORCHFILE_PICKLE_READER_H_
#define MUSTER_COMMON_TORCHFILE_PICKLE_READER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "common/torchfile/pickle_document.h"

namespace muster::torchfile {

// Reads a pickle. Needs memory for at most about 200 times `bytes`; a few times for a file of
// PyTorch. INVALID_ARGUMENT:
// - `bytes` are not one complete pickle, or are larger than 128 MiB.
// - The pickle contains a class, a function or another value than the above, which the message
//   names.
// - Values are nested deeper than 100, or a value contains itself.
absl::StatusOr<PickleDocument> ReadPickle(std::string_view bytes);

}  // namespace muster::torchfile

#endif  // MUSTER_COMMON_TORCHFILE_PICKLE_READER_H_
