#include "common/secret/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace muster::secret {

std::string Random(size_t bytes) {
  std::string result(bytes, '\0');
  // getrandom returns at most 256 bytes in one piece.
  if (bytes > 256 || getrandom(result.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    std::abort();
  }
  return result;
}

std::string Hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac;
  unsigned int size = 0;
  const auto* given =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &size);
  if (given == nullptr) std::abort();
  return {reinterpret_cast<const char*>(mac.data()), size};
}

std::string Mac(std::string_view key, const std::vector<std::string_view>& parts) {
  std::string text;
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    for (int shift = 0; shift < 64; shift += 8) text += static_cast<char>(size >> shift);
    text += part;
  }
  return Hmac(key, text);
}

bool Equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

namespace {

constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* Bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

// OpenSSL fails here only without memory, or with a key of another length.
void Must(bool done) {
  if (!done) std::abort();
}

// Makes a cipher with the key, the nonce and the context.
Cipher Begin(std::string_view key, std::string_view nonce, std::string_view context, bool encrypt) {
  Must(key.size() == kBytes);
  Cipher cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  Must(cipher != nullptr && EVP_CipherInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, Bytes(key),
                                              Bytes(nonce), encrypt ? 1 : 0) == 1);
  int size = 0;
  Must(EVP_CipherUpdate(cipher.get(), nullptr, &size, Bytes(context),
                        static_cast<int>(context.size())) == 1);
  return cipher;
}

std::string Through(const Cipher& cipher, std::string_view text) {
  std::string out(text.size(), '\0');
  int size = 0;
  Must(EVP_CipherUpdate(cipher.get(), Bytes(out), &size, Bytes(text),
                        static_cast<int>(text.size())) == 1);
  return out;
}

}  // namespace

std::string Seal(std::string_view key, std::string_view context, std::string_view text) {
  const std::string nonce = Random(kNonceBytes);
  const Cipher cipher = Begin(key, nonce, context, /*encrypt=*/true);
  const std::string sealed = Through(cipher, text);
  std::string tag(kTagBytes, '\0');
  int none = 0;
  Must(EVP_CipherFinal_ex(cipher.get(), nullptr, &none) == 1 &&
       EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag.data()) == 1);
  return nonce + sealed + tag;
}

absl::StatusOr<std::string> Unseal(std::string_view key, std::string_view context,
                                   std::string_view sealed) {
  const absl::Status forged =
      absl::UnauthenticatedError("it was not sealed with this secret, or is changed");
  if (sealed.size() < kNonceBytes + kTagBytes) return forged;
  const Cipher cipher = Begin(key, sealed.substr(0, kNonceBytes), context, /*encrypt=*/false);
  std::string text =
      Through(cipher, sealed.substr(kNonceBytes, sealed.size() - kNonceBytes - kTagBytes));
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  int none = 0;
  Must(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1);
  if (EVP_CipherFinal_ex(cipher.get(), nullptr, &none) != 1) return forged;
  return text;
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
