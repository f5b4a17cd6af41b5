#include "common/certs/openssl.h"

#include <openssl/err.h>

namespace muster::certs {

std::string OpenSslError() {
  const unsigned long first = ERR_get_error();  // NOLINT: OpenSSL's type
  ERR_clear_error();
  if (first == 0) return "unknown error";
  char text[256];
  ERR_error_string_n(first, text, sizeof(text));
  return text;
}

Owned<BIO> ReadBio(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string Contents(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);  // NOLINT: OpenSSL's type
  return std::string(data, static_cast<size_t>(size));
}

}  // namespace muster::certs
