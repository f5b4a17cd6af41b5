// A small certificate authority in a folder (0700), for those who have none:
//
//   ca.crt             its certificate; every program that speaks TLS needs it
//   ca.key             its key (0600); whoever has it can make any certificate
//   revoked            the deny list (deny_list.h), for musterd
//   issued/SERIAL.crt  every certificate that it issued, so that each can be revoked by its name
//
// Several programs may use a folder at the same time: one at a time changes it, the others get
// ABORTED at once. Errors besides those named: those of reading and writing files.
#ifndef MUSTER_COMMON_CERTS_AUTHORITY_H_
#define MUSTER_COMMON_CERTS_AUTHORITY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/certs/certificate.h"
#include "common/certs/pem_file.h"
#include "common/certs/subject.h"
#include "common/certs/tls_files.h"

namespace muster::certs {

// Certificates are valid from this long before they are issued, because clocks differ.
inline constexpr absl::Duration kBackdated = absl::Hours(1);
inline constexpr int kMaxDays = 3650;

struct NewAuthority {
  // Made if it is missing.
  std::string folder;
  int days = kMaxDays;
  // kReplace: a new CA takes the place of one in the folder; what that one issued is forgotten.
  IfExists if_exists = IfExists::kRefuse;
  absl::Time now;
};

// Returns the CA's own certificate. ALREADY_EXISTS: the folder holds a CA, or other files.
// INVALID_ARGUMENT: days out of [1, kMaxDays].
absl::StatusOr<Certificate> InitAuthority(const NewAuthority& options);

struct NewCertificate {
  // The CA's folder.
  std::string authority;
  Subject subject;
  // By which clients reach a coordinator; empty for all others.
  std::vector<std::string> hosts;
  int days = 365;
  // Where NAME.crt, NAME.key (0600) and ca.crt go. Made if it is missing.
  std::string out = ".";
  IfExists if_exists = IfExists::kRefuse;
  absl::Time now;
};

struct IssuedFiles {
  Certificate certificate;
  TlsFiles files;
};

// INVALID_ARGUMENT: a bad subject, host or number of days; a coordinator without hosts, or another
// with hosts; the certificate would be valid longer than the CA's. NOT_FOUND: no CA there.
// ALREADY_EXISTS: one of the files; an equal ca.crt is no error. FAILED_PRECONDITION: the CA has
// expired, or others may read its key. Nothing is written in these cases.
absl::StatusOr<IssuedFiles> Issue(const NewCertificate& options);

struct KnownCertificate {
  Certificate certificate;
  bool revoked = false;
};

// What a CA has issued, by name, the newest last. NOT_FOUND: no CA there.
absl::StatusOr<std::vector<KnownCertificate>> ListIssued(const std::string& folder);

struct Revocation {
  // What was not revoked before, and what was.
  std::vector<Certificate> revoked;
  std::vector<Certificate> already;
  // A serial number of no certificate that this CA issued.
  std::string unknown_serial;
};

// Revokes all certificates of "NAME" or "ROLE/NAME" that the CA has issued so far, or the one with
// a serial number. A serial number of 16 digits or more is revoked, too, if the CA does not know
// it. NOT_FOUND: no such certificate. INVALID_ARGUMENT: NAME has certificates of several roles; the
// message names them.
absl::StatusOr<Revocation> Revoke(const std::string& folder, const std::string& who,
                                  absl::Time now);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_AUTHORITY_H_
