// The file to which a job exports its weights: who wrote the one that is there, and whether it may
// be replaced.
#ifndef MUSTER_COMMON_EXPORTS_TARGET_H_
#define MUSTER_COMMON_EXPORTS_TARGET_H_

#include <string>

#include "absl/status/status.h"
#include "common/safetensors/safetensors.h"

namespace muster::exports {

// What an exported file says of its writer, in its `__metadata__`.
inline constexpr char kJobNameKey[] = "muster_job_name";
inline constexpr char kJobIdKey[] = "muster_job_id";

// All metadata of an exported file: the above, and what Hugging Face's readers want.
safetensors::Metadata MetadataOf(const std::string& job_name, const std::string& job_id);

// Whether a job of this name may write its weights to `path`: there is nothing yet, or a job of the
// same name wrote it, or `overwrite`, and then it is whatever file. Only looks.
// FAILED_PRECONDITION: no, and what to do. Other codes: it cannot be told, because the file cannot
// be looked at.
absl::Status CheckTarget(const std::string& path, const std::string& job_name, bool overwrite);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_TARGET_H_
