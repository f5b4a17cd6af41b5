#include "common/secret/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace muster::secret {

std::string Random(size_t bytes) {
  std::string result(bytes, '\0');
  // At most 256 bytes are given whole.
  if (bytes > 256 || getrandom(result.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    std::abort();
  }
  return result;
}

std::string Mac(std::string_view key, const std::vector<std::string_view>& parts) {
  std::string text;
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    for (int shift = 0; shift < 64; shift += 8) text += static_cast<char>(size >> shift);
    text += part;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac;
  unsigned int size = 0;
  const auto* given =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &size);
  if (given == nullptr) std::abort();
  return {reinterpret_cast<const char*>(mac.data()), size};
}

bool Equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string ToHex(std::string_view bytes) {
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

absl::StatusOr<std::string> FromHex(std::string_view text) {
  bool digits = text.size() % 2 == 0;
  for (const char c : text) digits = digits && absl::ascii_isxdigit(static_cast<unsigned char>(c));
  if (!digits) return absl::InvalidArgumentError("expected an even number of hexadecimal digits");
  return absl::HexStringToBytes({text.data(), text.size()});
}

}  // namespace muster::secret
