// Token files: bare little-endian uint16 or uint32, memory-mapped (docs/reference/data.md).
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

// Opens the files, and looks at the first 64 KB of each; Check reads all tokens (several GB/s).
// What looks like something else than tokens of this type is noted (Dataset::notes).
// Errors: INVALID_ARGUMENT for an empty list, a model that does not take tokens, a truncated file,
// files that hold no sample at all, a file of another kind (common/filekind), a file that is not
// what its sidecar describes (common/tokenizer/sidecar.h), or files of two tokenizers; NOT_FOUND
// etc. for files that cannot be opened.
// Errors of Check and Read besides Dataset's: INVALID_ARGUMENT for a token that is not below
// `spec.vocab_size` (file, token, byte offset, index in the file, size of the vocabulary),
// FAILED_PRECONDITION for a file that has been shortened.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(const std::vector<std::string>& paths,
                                                    TokenType type, const InputSpec& spec,
                                                    Emptiness emptiness = Emptiness::kRefused);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TOKEN_DATASET_H_
