// The secret with which the messages of webhooks are signed.
#ifndef MUSTER_COORDINATOR_WEBHOOK_SECRET_FILE_H_
#define MUSTER_COORDINATOR_WEBHOOK_SECRET_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace muster::webhook {

// A shorter secret can be guessed.
inline constexpr size_t kShortestSecret = 16;
inline constexpr size_t kLongestSecret = 4096;

// The contents of the file, without the line break at its end. Errors, each with what to do next:
// INVALID_ARGUMENT: the file is missing, no regular file, too short or too long; another user owns
// it, or others may read or write it. Other errors: the file system's.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_SECRET_FILE_H_
