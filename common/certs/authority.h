// A small certificate authority in a folder (0700), for users without one of their own:
//
//   ca.crt             its certificate; every program that speaks TLS needs it
//   ca.key             its key (0600); whoever has it can make any certificate
//   revoked            the deny list (deny_list.h), for musterd
//   issued/SERIAL.crt  every certificate that it issued, so that each can be revoked by its name
//
// Several programs may use a folder at the same time. Only one changes the folder at a time; the
// others get ABORTED at once. Errors besides those named: those of reading and writing files.
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

// The time before its issue from which a certificate is valid, because clocks differ.
inline constexpr absl::Duration kBackdated = absl::Hours(1);
inline constexpr int kMaxDays = 3650;

struct NewAuthority {
  // The folder of the CA, made if missing.
  std::string folder;
  int days = kMaxDays;
  // kReplace: a new CA replaces the CA in the folder, and the certificates that the old CA issued
  // are forgotten.
  IfExists if_exists = IfExists::kRefuse;
  absl::Time now;
};

// Makes a CA and returns its own certificate. ALREADY_EXISTS: the folder holds a CA, or other
// files. INVALID_ARGUMENT: the days are not in [1, kMaxDays].
absl::StatusOr<Certificate> InitAuthority(const NewAuthority& options);

struct NewCertificate {
  // The CA's folder.
  std::string authority;
  Subject subject;
  // The hosts by which clients reach a coordinator; empty for all other roles.
  std::vector<std::string> hosts;
  int days = 365;
  // The folder for NAME.crt, NAME.key (0600) and ca.crt; made if missing.
  std::string out = ".";
  IfExists if_exists = IfExists::kRefuse;
  absl::Time now;
};

struct IssuedFiles {
  Certificate certificate;
  TlsFiles files;
};

// Issues a certificate. Errors, after which nothing is written:
// - INVALID_ARGUMENT: a bad subject, host or number of days.
// - INVALID_ARGUMENT: a coordinator without hosts, or another role with hosts.
// - INVALID_ARGUMENT: the certificate would be valid longer than the CA's.
// - NOT_FOUND: there is no CA.
// - ALREADY_EXISTS: one of the files exists; an equal ca.crt is no error.
// - FAILED_PRECONDITION: the CA has expired, or other users may read its key.
absl::StatusOr<IssuedFiles> Issue(const NewCertificate& options);

struct KnownCertificate {
  Certificate certificate;
  bool revoked = false;
};

// The certificates that a CA has issued, by name, the newest last. NOT_FOUND: there is no CA.
absl::StatusOr<std::vector<KnownCertificate>> ListIssued(const std::string& folder);

struct Revocation {
  // The certificates that this call revoked, and the ones revoked before.
  std::vector<Certificate> revoked;
  std::vector<Certificate> already;
  // A serial number of which this CA knows no certificate.
  std::string unknown_serial;
};

// Revokes all certificates of "NAME" or "ROLE/NAME" that the CA has issued so far, or the one with
// a serial number. A serial number of 16 digits or more is revoked even if the CA does not know it.
// NOT_FOUND: no such certificate. INVALID_ARGUMENT: NAME has certificates of several roles; the
// message names them.
absl::StatusOr<Revocation> Revoke(const std::string& folder, const std::string& who,
                                  absl::Time now);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_AUTHORITY_H_
