// Makes token files (docs/job-file.md, data.*.tokens) of any files: every byte is a token.
#ifndef MUSTER_CLIENT_CLI_PACK_H_
#define MUSTER_CLIENT_CLI_PACK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::cli {

struct PackOptions {
  // Read one after the other; regular files.
  std::vector<std::string> inputs;
  std::string out;
  // Where the tokens beyond the first `split` of all go; empty: there are none.
  std::string out_rest;
  // Above 0 and below 1, with out_rest; absent without it.
  std::optional<double> split;
};

struct PackedFile {
  std::string path;
  uint64_t tokens = 0;
  // Entropy of the file's token frequencies in nats per token: the loss of a model that knows only
  // how often each token comes, so what training has to get below.
  double unigram_entropy = 0;
};

// Writes uint16, little endian. The files appear under their names when all are durable; after an
// error before that nothing new is there. `interrupted` is asked now and then. INVALID_ARGUMENT:
// options that contradict each other, or nothing to write. NOT_FOUND, PERMISSION_DENIED, ...: of
// the file that is named. CANCELLED: interrupted.
absl::StatusOr<std::vector<PackedFile>> Pack(const PackOptions& options,
                                             const std::function<bool()>& interrupted);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_PACK_H_
