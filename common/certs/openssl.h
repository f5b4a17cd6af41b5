// OpenSSL's objects with owners, and OpenSSL's errors as text.
#ifndef MUSTER_COMMON_CERTS_OPENSSL_H_
#define MUSTER_COMMON_CERTS_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace muster::certs {

struct OpenSslFree {
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(BIO* bio) const { BIO_free_all(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
  void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpenSslFree>;

// Empties this thread's queue of errors. Returns the first error, or "unknown error".
std::string OpenSslError();

// A BIO that reads `text`, which must outlive it.
Owned<BIO> ReadBio(const std::string& text);
// The bytes that were written to a BIO in memory.
std::string Contents(BIO* bio);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_OPENSSL_H_
