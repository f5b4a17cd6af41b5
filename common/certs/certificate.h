// Reads X.509 certificates and private keys in PEM form. Pure; thread-safe.
#ifndef MUSTER_COMMON_CERTS_CERTIFICATE_H_
#define MUSTER_COMMON_CERTS_CERTIFICATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/certs/openssl.h"

namespace muster::certs {

// What Muster looks at in a certificate.
struct Certificate {
  // Of the subject. Empty: it has none or several, so it does not say whom the certificate is for.
  std::string common_name;
  // As NormalSerial.
  std::string serial;
  absl::Time not_before;
  absl::Time not_after;
  // For which hosts a server may use it: DNS names and IP addresses.
  std::vector<std::string> hosts;
};

Certificate Describe(const X509& certificate);

// The certificates of a PEM text in their order; at least one. INVALID_ARGUMENT: there is none, or
// one cannot be read.
absl::StatusOr<std::vector<Owned<X509>>> ReadCertificates(const std::string& pem);
// The first of them.
absl::StatusOr<Certificate> ParseCertificate(const std::string& pem);
// A private key. INVALID_ARGUMENT: there is none, it cannot be read, or it needs a password.
absl::StatusOr<Owned<EVP_PKEY>> ReadKey(const std::string& pem);

// A serial number as Muster writes it: hexadecimal, lower case, no zeros before it. Accepts what
// other programs print: upper case, ':' between bytes, "0x" before it. INVALID_ARGUMENT: anything
// else, or more than 20 bytes, which is X.509's limit.
absl::StatusOr<std::string> NormalSerial(const std::string& text);

// How far the clocks of two machines may differ: a certificate that begins within this time counts
// as valid.
inline constexpr absl::Duration kClockLeeway = absl::Minutes(5);
// FAILED_PRECONDITION: it has expired, or it is not valid yet; the message has the times.
absl::Status CheckTimes(const Certificate& certificate, absl::Time now);
// "2026-11-26 10:00:00 UTC".
std::string TimeText(absl::Time time);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_CERTIFICATE_H_
