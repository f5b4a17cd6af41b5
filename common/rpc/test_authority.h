// A CA of a test, and credentials that check nothing before gRPC does. For tests.
#ifndef MUSTER_COMMON_RPC_TEST_AUTHORITY_H_
#define MUSTER_COMMON_RPC_TEST_AUTHORITY_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/certs/authority.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster {

class TestAuthority {
 public:
  TestAuthority() {
    certs::InitAuthority({.folder = folder(), .now = absl::Now() - absl::Hours(24 * 30)}).value();
  }

  // The CA's folder.
  std::string folder() const { return temporary_.Path("ca"); }
  std::string ca() const { return folder() + "/ca.crt"; }

  // Makes files of "ROLE/NAME" in a separate folder, in place of older ones. A coordinator's
  // certificate is for 127.0.0.1.
  certs::TlsFiles Issue(certs::Role role, const std::string& name, absl::Time now = absl::Now()) {
    certs::NewCertificate options{
        .authority = folder(),
        .subject = {role, name},
        .days = 1,
        .out = temporary_.Path(absl::StrCat(certs::ToString(role), "-", name)),
        .if_exists = certs::IfExists::kReplace,
        .now = now};
    if (role == certs::Role::kCoordinator) options.hosts = {"127.0.0.1"};
    return certs::Issue(options).value().files;
  }
  certs::TlsFiles IssueExpired(certs::Role role, const std::string& name) {
    return Issue(role, name, absl::Now() - absl::Hours(25));
  }

 private:
  const files::TempDir temporary_;
};

// A client that shows any given certificate, or none.
inline std::shared_ptr<grpc::ChannelCredentials> UncheckedTls(const certs::TlsFiles& files,
                                                              const std::string& ca) {
  std::vector<grpc::experimental::IdentityKeyCertPair> own;
  if (!files.certificate.empty()) {
    own.push_back({files::ReadFile(files.key).value(), files::ReadFile(files.certificate).value()});
  }
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          files::ReadFile(ca).value(), own));
  options.watch_root_certs();
  if (!own.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_TEST_AUTHORITY_H_
