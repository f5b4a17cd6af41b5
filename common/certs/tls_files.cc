#include "common/certs/tls_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/certs/openssl.h"
#include "common/certs/pem_file.h"
#include "common/certs/subject.h"
#include "common/files/disk.h"
#include "common/status/status.h"

namespace muster::certs {
namespace {

absl::Status CheckGiven(const TlsFiles& files) {
  const auto missing = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "TLS needs three files: a certificate, its key, and the certificate of the CA; ", what,
        " is not given (`muster certs issue` writes all three)"));
  };
  if (files.certificate.empty()) return missing("the certificate");
  if (files.key.empty()) return missing("the key");
  if (files.ca.empty()) return missing("the CA's certificate");
  return absl::OkStatus();
}

absl::Status CheckPrivate(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return files::ErrnoStatus(errno, "read", path);
  if ((status.st_mode & S_IRWXO) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("key %s: every account of this machine may use it (mode %04o); remove that "
                      "with `chmod 600 %s`, and if somebody may have copied it, issue a new one",
                      path, status.st_mode & 07777, path));
}

absl::Status CheckSubject(const Certificate& own, Side side) {
  const auto subject = ParseSubject(own.common_name);
  if (!subject.ok()) return Annotate(subject.status(), "its common name says whom it is for");
  const bool coordinator = subject->role == Role::kCoordinator;
  if (side == Side::kServer && !coordinator) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is for ", ToString(*subject),
                     "; a server needs one for coordinator/NAME (`muster certs issue coordinator "
                     "NAME --host HOST`)"));
  }
  if (side == Side::kClient && coordinator) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is for ", ToString(*subject),
                     "; a client needs one of the role operator, reader, agent or worker"));
  }
  return absl::OkStatus();
}

// Checks the chain as the other end does, which has the same CAs.
absl::Status CheckChain(const std::vector<Owned<X509>>& own, const std::vector<Owned<X509>>& cas,
                        Side side, absl::Time now) {
  const Owned<X509_STORE> store(X509_STORE_new());
  const Owned<X509_STORE_CTX> context(X509_STORE_CTX_new());
  STACK_OF(X509)* between = sk_X509_new_null();
  for (const auto& ca : cas) X509_STORE_add_cert(store.get(), ca.get());
  for (size_t i = 1; i < own.size(); ++i) sk_X509_push(between, own[i].get());
  X509_STORE_CTX_init(context.get(), store.get(), own.front().get(), between);
  X509_STORE_CTX_set_default(context.get(), side == Side::kServer ? "ssl_server" : "ssl_client");
  X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(context.get()), absl::ToTimeT(now));
  const bool good = X509_verify_cert(context.get()) == 1;
  const int error = X509_STORE_CTX_get_error(context.get());
  const int depth = X509_STORE_CTX_get_error_depth(context.get());
  sk_X509_free(between);
  if (good) return absl::OkStatus();
  if (error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID) {
    return absl::FailedPreconditionError(absl::StrCat(X509_verify_cert_error_string(error),
                                                      depth > 0 ? " (the CA's)" : "",
                                                      "; now it is ", TimeText(now)));
  }
  return absl::InvalidArgumentError(X509_verify_cert_error_string(error));
}

}  // namespace

absl::StatusOr<Certificate> CheckTlsFiles(const TlsFiles& files, Side side, absl::Time now) {
  RETURN_IF_ERROR(CheckGiven(files));
  const std::string about_own = absl::StrCat("certificate ", files.certificate);
  const std::string about_key = absl::StrCat("key ", files.key);
  const std::string about_ca = absl::StrCat("CA's certificate ", files.ca);
  const auto own_pem = ReadPemFile(files.certificate);
  if (!own_pem.ok()) return Annotate(own_pem.status(), about_own);
  const auto key_pem = ReadPemFile(files.key);
  if (!key_pem.ok()) return Annotate(key_pem.status(), about_key);
  const auto ca_pem = ReadPemFile(files.ca);
  if (!ca_pem.ok()) return Annotate(ca_pem.status(), about_ca);

  const auto own = ReadCertificates(*own_pem);
  if (!own.ok()) return Annotate(own.status(), about_own);
  const auto key = ReadKey(*key_pem);
  if (!key.ok()) return Annotate(key.status(), about_key);
  const auto cas = ReadCertificates(*ca_pem);
  if (!cas.ok()) return Annotate(cas.status(), about_ca);

  RETURN_IF_ERROR(CheckPrivate(files.key));
  if (X509_check_private_key(own->front().get(), key->get()) != 1) {
    OpenSslError();
    return absl::InvalidArgumentError(
        absl::StrCat("certificate ", files.certificate, " and key ", files.key,
                     " do not belong together; give the key that was written with the certificate, "
                     "or issue both anew"));
  }
  Certificate certificate = Describe(*own->front());
  RETURN_IF_ERROR(Annotate(CheckTimes(certificate, now), about_own));
  RETURN_IF_ERROR(Annotate(CheckSubject(certificate, side), about_own));
  RETURN_IF_ERROR(Annotate(
      // A certificate that begins within the leeway counts.
      CheckChain(*own, *cas, side, std::max(now, certificate.not_before)),
      absl::StrCat(about_own, " does not hold with the CAs in ", files.ca,
                   "; that file needs the CA that issued it, and it must be issued for a ",
                   side == Side::kServer ? "server" : "client")));
  return certificate;
}

}  // namespace muster::certs
