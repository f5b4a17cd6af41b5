// The files that a job writes for others: who wrote an existing one, and whether it may be
// replaced.
#ifndef MUSTER_COMMON_EXPORTS_TARGET_H_
#define MUSTER_COMMON_EXPORTS_TARGET_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/safetensors/safetensors.h"
#include "common/tokenizer/source.h"

namespace muster::exports {

// The information about its writer in the `__metadata__` of an exported file.
inline constexpr char kJobNameKey[] = "muster_job_name";
inline constexpr char kJobIdKey[] = "muster_job_id";
inline constexpr char kTokenizerKey[] = "muster_tokenizer";
inline constexpr char kTokenizerHashKey[] = "muster_tokenizer_xxh3_128";

// All metadata of an exported file: the writer, and what Hugging Face's readers need.
// `tokenizer`: what made the training data, if that is known.
safetensors::Metadata MetadataOf(const std::string& job_name, const std::string& job_id,
                                 const tokenizer::Source& tokenizer = {});

// The name of the job that wrote the export `path`; empty: there is none, or no job wrote it.
// Errors: those of reading the file.
absl::StatusOr<std::string> WriterOf(const std::string& path);

// The files that a job reads: the setting ("model.weights"), and the path.
using Inputs = std::vector<std::pair<std::string, std::string>>;

// All checks below change nothing, and answer for what is at `path` in this moment.

// Whether `path` may be written at all: nothing is there, or a regular file that is none of
// `inputs`, by its name or by another one; and it does not lie in a checkpoint. FAILED_PRECONDITION
// otherwise (a symbolic link is no regular file, whatever it leads to). Other codes: it is not
// known.
absl::Status CheckPlace(const std::string& path, const Inputs& inputs);

// Whether a job of this name may write its weights to `path`, which CheckPlace allows: no file
// exists there, or a job of the same name wrote it, or `overwrite` is set and it is any file.
// FAILED_PRECONDITION: the job may not; the message says what to do. Other codes: it is not known,
// because the file cannot be read.
absl::Status CheckTarget(const std::string& path, const std::string& job_name, bool overwrite,
                         const Inputs& inputs = {});

// The same for a file whose format does not say who wrote it, so that its signature does
// (signature.h). ALREADY_EXISTS: there is a file of somebody else; the message says what to do.
absl::Status CheckOutput(const std::string& path, const std::string& job_name, bool overwrite,
                         const Inputs& inputs = {});

// Whether the config.json beside the weights `path` may get the contents `config` (empty: none is
// written). It belongs to the weights: so it may if it is not there, has these contents already, or
// if the weights that are at `path` now are an export that CheckTarget lets be replaced.
// FAILED_PRECONDITION: it is somebody else's, or no regular file. Called before the weights are
// replaced.
absl::Status CheckConfig(const std::string& path, const std::string& config,
                         const std::string& job_name, bool overwrite);

// Whether no file of `inputs` lies in `folder`, which would be replaced as a whole.
// FAILED_PRECONDITION: one does.
absl::Status CheckHoldsNoInput(const std::string& folder, const Inputs& inputs);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_TARGET_H_
