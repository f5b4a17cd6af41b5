// The file NAME.tokenizer.json beside a file of tokens, which names the tokenizer of the tokens
// (docs/reference/data.md). A file of tokens may be without a sidecar.
#ifndef MUSTER_COMMON_TOKENIZER_SIDECAR_H_
#define MUSTER_COMMON_TOKENIZER_SIDECAR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/source.h"

namespace muster::tokenizer {

struct Sidecar {
  Source tokenizer;
  int64_t tokens = 0;
  std::string dtype;       // "uint16" or "uint32"
  int64_t vocab_size = 0;  // larger than all tokens
};

// The path of the sidecar of the file `path`.
std::string SidecarPath(const std::string& path);

// Reads the sidecar of the file `path`; nothing if there is none. INVALID_ARGUMENT: the sidecar is
// malformed. Other errors: those of reading a file.
absl::StatusOr<std::optional<Sidecar>> ReadSidecar(const std::string& path);

// INVALID_ARGUMENT: the file `path` does not fit its sidecar, if read as tokens of the type `dtype`
// for a model with this vocabulary.
absl::Status CheckSidecar(const Sidecar& sidecar, const std::string& path, const std::string& dtype,
                          int64_t tokens, int64_t vocab_size);

// INVALID_ARGUMENT: both tokenizers are known, and they differ. `one` and `other`: for the message,
// what was made with each.
absl::Status CheckSameTokenizer(const Source& a, const std::string& one, const Source& b,
                                const std::string& other);

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_SIDECAR_H_
