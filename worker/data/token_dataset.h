// Token files: bare little-endian uint16 or uint32, memory-mapped (docs/data.md).
// Sample i of a file with T tokens and context C is tokens [i*C, i*C + C], C + 1 of them, inputs
// and targets shifted by one; a file has (T-1)/C samples; files follow one another and no sample
// crosses files.
#ifndef MUSTER_WORKER_DATA_TOKEN_DATASET_H_
#define MUSTER_WORKER_DATA_TOKEN_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

enum class TokenType { kUint16, kUint32 };

// Opens and checks the files; every token is read once (several GB/s) and compared with
// `spec.vocab_size`.
// Errors: INVALID_ARGUMENT for an empty list, a model that does not take tokens, a truncated file,
// a token beyond the vocabulary (file, byte offset, token, size of the vocabulary), or files that
// hold no sample at all; NOT_FOUND etc. for files that cannot be opened.
// Errors of Read besides Dataset's: INVALID_ARGUMENT for a token that is beyond the vocabulary now,
// FAILED_PRECONDITION for a file that has been shortened.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(const std::vector<std::string>& paths,
                                                    TokenType type, const InputSpec& spec,
                                                    Emptiness emptiness = Emptiness::kRefused);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TOKEN_DATASET_H_
