// The files that a job writes for others: the writer of an existing file, and whether the file may
// be replaced.
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

// The keys of the writer in the `__metadata__` of an exported file.
inline constexpr char kJobNameKey[] = "muster_job_name";
inline constexpr char kJobIdKey[] = "muster_job_id";
inline constexpr char kTokenizerKey[] = "muster_tokenizer";
inline constexpr char kTokenizerHashKey[] = "muster_tokenizer_xxh3_128";

// All metadata of an exported file: the writer, and the entries that Hugging Face's readers need.
// `tokenizer`: the tokenizer of the training data, if known.
safetensors::Metadata MetadataOf(const std::string& job_name, const std::string& job_id,
                                 const tokenizer::Source& tokenizer = {});

// The name of the job that wrote the export `path`. Empty: there is no such file, or no job wrote
// it. Errors: those of reading the file.
absl::StatusOr<std::string> WriterOf(const std::string& path);

// The files that a job reads: the setting ("model.weights"), and the path.
using Inputs = std::vector<std::pair<std::string, std::string>>;

// The checks below change nothing. They answer for the file that is at `path` at this moment.

// Checks whether `path` may be written at all. At `path` there must be nothing, or a regular file
// other than `inputs` (under any name). `path` must not lie in a checkpoint. A symbolic link is not
// a regular file. FAILED_PRECONDITION: `path` may not be written. Other codes: the answer is not
// known.
absl::Status CheckPlace(const std::string& path, const Inputs& inputs);

// Checks whether a job of this name may write its weights to `path`, which CheckPlace allows. It
// may if no file is there, a job of the same name wrote the file, or `overwrite` is set.
// FAILED_PRECONDITION: the job may not; the message says what to do. Other codes: the answer is not
// known, because the file cannot be read.
absl::Status CheckTarget(const std::string& path, const std::string& job_name, bool overwrite,
                         const Inputs& inputs = {});

// Checks as CheckTarget does, for a file whose format does not say who wrote it: the signature says
// so (signature.h). ALREADY_EXISTS: the file of another writer is there; the message says what to
// do.
absl::Status CheckOutput(const std::string& path, const std::string& job_name, bool overwrite,
                         const Inputs& inputs = {});

// Checks whether the file `name` beside the weights `path` (config.json, the tokenizer) may get
// these contents (empty: the file is not written). It may in these cases:
// - There is no such file, or it has these contents already.
// - CheckTarget allows to replace the weights at `path`, to which the file belongs.
// FAILED_PRECONDITION: another writer's file, or not a regular file. Called before the weights are
// replaced.
absl::Status CheckBeside(const std::string& path, const std::string& name,
                         const std::string& contents, const std::string& job_name, bool overwrite);
// The same for config.json.
absl::Status CheckConfig(const std::string& path, const std::string& config,
                         const std::string& job_name, bool overwrite);

// Checks that no file of `inputs` lies in `folder`, which would be replaced as a whole.
// FAILED_PRECONDITION: a file of `inputs` lies there.
absl::Status CheckHoldsNoInput(const std::string& folder, const Inputs& inputs);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_TARGET_H_
