// The files with which a program proves who it is.
#ifndef MUSTER_COMMON_CERTS_TLS_FILES_H_
#define MUSTER_COMMON_CERTS_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/certs/certificate.h"

namespace muster::certs {

// Three paths of PEM files, or three empty ones: no TLS.
struct TlsFiles {
  // The program's own certificate, which certificates of CAs between it and the root may follow.
  std::string certificate;
  std::string key;
  // The trusted CAs: those of the own certificate and of the other end's certificate.
  std::string ca;
};

enum class Side { kServer, kClient };

// Checks whether a connection with these files can work, and returns the own certificate. Each
// message names the file and what to do.
// - NOT_FOUND, PERMISSION_DENIED: a file is missing or cannot be read.
// - INVALID_ARGUMENT: a path is missing. A file is not a regular file, too large, or not PEM.
//   Certificate and key do not belong together. The CAs did not issue the certificate, or not for
//   this side of a connection. The subject's role is wrong for this side (a server is a
//   coordinator, a client is not).
// - FAILED_PRECONDITION: the certificate, or the CA's, has expired or is not valid yet; every
//   account of this machine may read the key.
absl::StatusOr<Certificate> CheckTlsFiles(const TlsFiles& files, Side side, absl::Time now);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_TLS_FILES_H_
