// Makes token files (docs/reference/job-file.md, data.*.tokens) from any files: every byte is a
// token.
#ifndef MUSTER_CLIENT_CLI_DATA_PACK_H_
#define MUSTER_CLIENT_CLI_DATA_PACK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::cli {

struct PackOptions {
  // Regular files, read one after the other.
  std::vector<std::string> inputs;
  std::string out;
  // The file for the tokens after the first part (`split`); empty: no such file.
  std::string out_rest;
  // The share of the first part: above 0 and below 1. Set if and only if out_rest is.
  std::optional<double> split;
};

struct PackedFile {
  std::string path;
  uint64_t tokens = 0;
  std::string dtype = "uint16";
  // Entropy of the file's token frequencies in nats per token: the loss of a model that knows only
  // how often each token occurs. Training should reach a lower loss.
  double unigram_entropy = 0;
};

// INVALID_ARGUMENT: an input, or the tokenizer's file, is certainly something else, such as a
// git-lfs pointer (common/filekind). `tokenizer` is empty without such a file. Files that cannot be
// read are no error here.
absl::Status CheckPackInputs(const std::vector<std::string>& inputs, const std::string& tokenizer);

// Writes uint16, little endian. The files get their names when all files are durable; after an
// earlier error there is no new file. `interrupted` is called from time to time. INVALID_ARGUMENT:
// options that contradict each other, or nothing to write. NOT_FOUND, PERMISSION_DENIED, ...: the
// error of a file, which the message names. CANCELLED: interrupted.
absl::StatusOr<std::vector<PackedFile>> Pack(const PackOptions& options,
                                             const std::function<bool()>& interrupted);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_DATA_PACK_H_
