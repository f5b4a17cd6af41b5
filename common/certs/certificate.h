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

// The parts of a certificate that Muster uses.
struct Certificate {
  // The common name of the subject. Empty: the subject has none or several, and so names nobody.
  std::string common_name;
  // The serial number, as NormalSerial writes it.
  std::string serial;
  absl::Time not_before;
  absl::Time not_after;
  // The hosts for which a server may use the certificate: DNS names and IP addresses.
  std::vector<std::string> hosts;
};

Certificate Describe(const X509& certificate);

// The certificates of a PEM text in their order; at least one. INVALID_ARGUMENT: there is no
// certificate, or one cannot be read.
absl::StatusOr<std::vector<Owned<X509>>> ReadCertificates(const std::string& pem);
// The first certificate of a PEM text.
absl::StatusOr<Certificate> ParseCertificate(const std::string& pem);
// The private key of a PEM text. INVALID_ARGUMENT: there is no key, it cannot be read, or it needs
// a password.
absl::StatusOr<Owned<EVP_PKEY>> ReadKey(const std::string& pem);

// A serial number as Muster writes it: hexadecimal, lower case, no zeros before it. Accepts the
// forms of other programs: upper case, ':' between bytes, "0x" at the beginning. INVALID_ARGUMENT:
// any other text, or more than 20 bytes, which is X.509's limit.
absl::StatusOr<std::string> NormalSerial(const std::string& text);

// The largest difference of the clocks of two machines. A certificate that begins within this time
// counts as valid.
inline constexpr absl::Duration kClockLeeway = absl::Minutes(5);
// FAILED_PRECONDITION: the certificate has expired, or is not valid yet; the message has the times.
absl::Status CheckTimes(const Certificate& certificate, absl::Time now);
// "2026-11-26 10:00:00 UTC".
std::string TimeText(absl::Time time);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_CERTIFICATE_H_
