// Secrets by which processes of one cluster recognise each other, and proofs of them.
#ifndef MUSTER_COMMON_SECRET_SECRET_H_
#define MUSTER_COMMON_SECRET_SECRET_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::secret {

inline constexpr size_t kBytes = 32;

// The environment variable by which an agent gives a worker its secret, as hexadecimal digits. An
// environment can be read only by the same user, and an argument by everybody.
inline constexpr char kWorkerVariable[] = "MUSTER_WORKER_SECRET";

// From the kernel.
std::string Random(size_t bytes = kBytes);

// HMAC-SHA-256 (RFC 2104) of the parts, each with its length in front, so that no two lists of
// parts give the same text. 32 bytes.
std::string Mac(std::string_view key, const std::vector<std::string_view>& parts);

// Takes the same time wherever two texts of one length differ.
bool Equal(std::string_view a, std::string_view b);

std::string ToHex(std::string_view bytes);
// INVALID_ARGUMENT: not an even number of hexadecimal digits.
absl::StatusOr<std::string> FromHex(std::string_view text);

}  // namespace muster::secret

#endif  // MUSTER_COMMON_SECRET_SECRET_H_
