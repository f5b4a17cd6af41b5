// All ranks exchange the results of their parts of a common task.
#ifndef MUSTER_WORKER_CHECKPOINT_EXCHANGE_H_
#define MUSTER_WORKER_CHECKPOINT_EXCHANGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "worker/comm/communicator.h"

namespace muster::checkpoint {

// A rank's result: an error, or a file, if the task was to write a file. Error texts are cut at
// about 450 bytes; the file's name is not sent.
using PartResult = absl::StatusOr<manifest::FileRecord>;
PartResult ToResult(const absl::Status& status);

// Returns the results of all ranks, in rank order. Collective; an error is the communicator's.
absl::StatusOr<std::vector<PartResult>> Exchange(comm::Communicator& communicator,
                                                 const PartResult& mine, const char* what,
                                                 int64_t step);

// Returns the texts of all ranks, in rank order. Collective; an error is the communicator's.
absl::StatusOr<std::vector<std::string>> GatherTexts(comm::Communicator& communicator,
                                                     const std::string& mine, const char* what,
                                                     int64_t step);

// The ranks with errors.
std::vector<int64_t> Failed(const std::vector<PartResult>& results);

// OK, or the errors by rank ("rank 1: ...; rank 2: ..."), with the code of the first.
absl::Status Combine(const std::vector<PartResult>& results);

// Returns rank 0's `text` on all ranks; the texts of the other ranks are ignored. Collective; an
// error is the communicator's.
absl::StatusOr<std::string> TellAll(comm::Communicator& communicator, const std::string& text,
                                    const char* what);

// Sets `told` on all ranks to rank 0's `status`; the texts of errors are cut as in Exchange.
// Collective; an error is the communicator's.
absl::Status TellAll(comm::Communicator& communicator, const absl::Status& status, const char* what,
                     int64_t step, absl::Status* told);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_EXCHANGE_H_
