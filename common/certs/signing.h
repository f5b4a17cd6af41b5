// Makes keys and certificates: EC keys on P-256, signatures with SHA-256, random serial numbers of
// 128 bits. Thread-safe.
#ifndef MUSTER_COMMON_CERTS_SIGNING_H_
#define MUSTER_COMMON_CERTS_SIGNING_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/certs/openssl.h"

namespace muster::certs {

enum class Use { kAuthority, kServer, kClient };

struct ToSign {
  std::string common_name;
  Use use = Use::kClient;
  // The hosts of the certificate, each accepted by CheckHost.
  std::vector<std::string> hosts;
  absl::Time from;
  absl::Time until;
};

struct Identity {
  Owned<X509> certificate;
  Owned<EVP_PKEY> key;
};

// Makes a new key and its certificate, signed by `issuer`, or by the new key if `issuer` is null.
// INTERNAL: OpenSSL's error.
absl::StatusOr<Identity> Sign(const ToSign& what, const Identity* issuer);

// INVALID_ARGUMENT: neither an IP address nor a host name (letters, digits, '-' and '.'; the first
// part may be '*'). The message has an example.
absl::Status CheckHost(const std::string& host);

// The certificate as PEM.
std::string Pem(const X509& certificate);
std::string Pem(const EVP_PKEY& key);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_SIGNING_H_
