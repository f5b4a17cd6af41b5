// Which tokenizer made the tokens of a job's data (docs/data.md).
#ifndef MUSTER_WORKER_TRAIN_DATA_TOKENIZER_OF_JOB_H_
#define MUSTER_WORKER_TRAIN_DATA_TOKENIZER_OF_JOB_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/source.h"
#include "worker/comm/communicator.h"

namespace muster::train {

// A set of data as one rank has opened it. Its tokenizer may be unknown.
struct TokenizedSet {
  std::string name;  // "data.train"
  tokenizer::Source tokenizer;
};

// The same on all ranks: the first tokenizer that is known, by rank and then in the order of
// `sets`; an unknown one if no rank knows any. Where each rank has files of its own, some of them
// may have no sidecar. Collective. Errors: INVALID_ARGUMENT: two sets, or the files of two ranks,
// were made with two tokenizers; the communicator's.
absl::StatusOr<tokenizer::Source> TokenizerOfJob(const std::vector<TokenizedSet>& sets,
                                                 comm::Communicator& communicator);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DATA_TOKENIZER_OF_JOB_H_
