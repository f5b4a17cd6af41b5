// Makes token files with a tokenizer of Hugging Face: runs the Python package `muster`
// (client/python, muster.data.pack), because the library `tokenizers` is Python's.
#ifndef MUSTER_CLIENT_CLI_PACK_WITH_TOKENIZER_H_
#define MUSTER_CLIENT_CLI_PACK_WITH_TOKENIZER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/pack.h"

namespace muster::cli {

struct TokenizerOptions {
  std::string tokenizer;  // the path of a tokenizer.json
  // A token that is added after each input; may be empty.
  std::string separator;
  // The program that runs Python: a path, or a name that is looked up in $PATH.
  std::string python = "python3";
};

// As Pack, with each input as one text in UTF-8. The tokens are uint16, or uint32 if the tokenizer
// has more than 65536. Beside each file its sidecar is written (common/tokenizer/sidecar.h).
// FAILED_PRECONDITION: Python, or a package in it, is missing.
absl::StatusOr<std::vector<PackedFile>> PackWithTokenizer(const PackOptions& options,
                                                          const TokenizerOptions& tokenizer,
                                                          const std::function<bool()>& interrupted);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_PACK_WITH_TOKENIZER_H_
