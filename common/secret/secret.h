// Secrets by which processes of one cluster recognise each other, and proofs of such secrets.
#ifndef MUSTER_COMMON_SECRET_SECRET_H_
#define MUSTER_COMMON_SECRET_SECRET_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::secret {

inline constexpr size_t kBytes = 32;

// Random bytes from the kernel.
std::string Random(size_t bytes = kBytes);

// HMAC-SHA-256 (RFC 2104). 32 bytes.
std::string Hmac(std::string_view key, std::string_view text);

// Hmac of the parts, each with its length before it, so that no two lists of parts give the same
// text. 32 bytes.
std::string Mac(std::string_view key, const std::vector<std::string_view>& parts);

// Returns whether the texts are equal. Takes the same time for all texts of one length.
bool Equal(std::string_view a, std::string_view b);

// Encrypts by AES-256-GCM (NIST SP 800-38D). Without the key (kBytes bytes), nobody can read the
// text, or make one that Unseal accepts for this context. The result is 28 bytes longer than the
// text. With random nonces of 96 bits, a key is good for 2^32 texts.
std::string Seal(std::string_view key, std::string_view context, std::string_view text);
// UNAUTHENTICATED: the text was not sealed with this key and context.
absl::StatusOr<std::string> Unseal(std::string_view key, std::string_view context,
                                   std::string_view sealed);

std::string ToHex(std::string_view bytes);
// INVALID_ARGUMENT: not an even number of hexadecimal digits.
absl::StatusOr<std::string> FromHex(std::string_view text);

}  // namespace muster::secret

#endif  // MUSTER_COMMON_SECRET_SECRET_H_
