// Token files: bare little-endian uint16 or uint32, memory-mapped (docs/reference/data.md).
// Sample i of a file with T tokens and context C has the C + 1 tokens from i*C. Inputs and targets
// are these tokens, shifted by one. A file has (T-1)/C samples; files follow one another, and no
// sample crosses files.
#ifndef MUSTER_WORKER_DATA_TOKENS_TOKEN_DATASET_H_
#define MUSTER_WORKER_DATA_TOKENS_TOKEN_DATASET_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

enum class TokenType { kUint16, kUint32 };

// `type` absent: kUint32 if the vocabulary has more than 65536 tokens, otherwise kUint16.
//
// Opens the files, and looks at the first 64 KB of each; Check reads all tokens (several GB/s).
// Data that do not look like tokens of this type are noted (Dataset::notes). Errors: NOT_FOUND etc.
// for files that cannot be opened; INVALID_ARGUMENT:
// - an empty list, a truncated file, or files without any sample;
// - a model that does not take tokens;
// - a file of another kind (common/filekind);
// - a file that differs from its sidecar's description (common/tokenizer/sidecar.h);
// - files of two tokenizers.
//
// Errors of Check and Read besides Dataset's:
// - INVALID_ARGUMENT: a token that is not below `spec.vocab_size` (file, token, byte offset, index
//   in the file, size of the vocabulary);
// - FAILED_PRECONDITION: a file has been shortened.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(const std::vector<std::string>& paths,
                                                    std::optional<TokenType> type,
                                                    const InputSpec& spec,
                                                    Emptiness emptiness = Emptiness::kRefused);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TOKENS_TOKEN_DATASET_H_
