// The files that a job writes for others: who wrote an existing one, and whether it may be
// replaced.
#ifndef MUSTER_COMMON_EXPORTS_TARGET_H_
#define MUSTER_COMMON_EXPORTS_TARGET_H_

#include <string>

#include "absl/status/status.h"
#include "common/safetensors/safetensors.h"

namespace muster::exports {

// The information about its writer in the `__metadata__` of an exported file.
inline constexpr char kJobNameKey[] = "muster_job_name";
inline constexpr char kJobIdKey[] = "muster_job_id";

// All metadata of an exported file: the writer, and what Hugging Face's readers need.
safetensors::Metadata MetadataOf(const std::string& job_name, const std::string& job_id);

// Whether a job of this name may write its weights to `path`: no file exists there, or a job of the
// same name wrote it, or `overwrite` is set and it is any file. Changes nothing.
// FAILED_PRECONDITION: the job may not; the message says what to do. Other codes: it is not known,
// because the file cannot be read.
absl::Status CheckTarget(const std::string& path, const std::string& job_name, bool overwrite);

// The same for a file that no job may replace unless `overwrite` is set. ALREADY_EXISTS: there is a
// file; the message says what to do. Other codes: it is not known.
absl::Status CheckAbsent(const std::string& path, bool overwrite);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_TARGET_H_
