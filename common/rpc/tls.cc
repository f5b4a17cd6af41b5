#include "common/rpc/tls.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/certs/certificate.h"
#include "common/certs/subject.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster {
namespace {

namespace tls = grpc::experimental;

std::string Text(grpc::string_ref text) { return std::string(text.data(), text.size()); }

// The handshake has proved that a CA which is trusted issued the server's certificate. It must also
// be for this host, and for a coordinator: otherwise every agent could pass for one.
class CoordinatorVerifier : public tls::ExternalCertificateVerifier {
 public:
  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* result) override {
    *result = ToGrpc(Check(request));
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  absl::Status Check(tls::TlsCustomVerificationCheckRequest* request) {
    const std::string target = absl::CHexEscape(Text(request->target_name()));
    const auto certificate = certs::ParseCertificate(Text(request->peer_cert()));
    if (!certificate.ok()) {
      return absl::UnauthenticatedError(absl::StrCat(
          "the server at ", target, " has a bad certificate: ", Message(certificate.status())));
    }
    const auto subject = certs::ParseSubject(certificate->common_name);
    if (!subject.ok() || subject->role != certs::Role::kCoordinator) {
      return absl::UnauthenticatedError(
          absl::StrCat("the server at ", target, " has the certificate of '",
                       absl::CHexEscape(certificate->common_name),
                       "', which is not a coordinator's: is the address right? If it is, somebody "
                       "pretends to be "
                       "the coordinator"));
    }
    grpc::Status for_host;
    if (!host_names_.Verify(request, nullptr, &for_host) || !for_host.ok()) {
      return absl::UnauthenticatedError(absl::StrCat(
          "the certificate of ", certs::ToString(*subject), " is not for ", target, " but for ",
          certificate->hosts.empty() ? "no host" : absl::StrJoin(certificate->hosts, ", "),
          "; use one of these, or issue it again with --host ", target));
    }
    return absl::OkStatus();
  }

  tls::HostNameCertificateVerifier host_names_;
};

std::shared_ptr<tls::CertificateProviderInterface> Watch(const certs::TlsFiles& files) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.certificate,
                                                               files.ca, kTlsFilesInterval);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(
    const certs::TlsFiles& files, Authorizer authorize, std::shared_ptr<CallLimit> limit) {
  RETURN_IF_ERROR(CheckTlsFiles(files, certs::Side::kServer, absl::Now()).status());
  tls::TlsServerCredentialsOptions options(Watch(files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials = tls::TlsServerCredentials(options);
  if (credentials == nullptr) {
    return absl::InternalError(absl::StrCat("gRPC makes no TLS of ", files.certificate));
  }
  credentials->SetAuthMetadataProcessor(
      CallerProcessor::ForCertificates(std::move(authorize), std::move(limit)));
  return credentials;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientTls(const certs::TlsFiles& files) {
  RETURN_IF_ERROR(CheckTlsFiles(files, certs::Side::kClient, absl::Now()).status());
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<CoordinatorVerifier>());
  std::shared_ptr<grpc::ChannelCredentials> credentials = tls::TlsCredentials(options);
  if (credentials == nullptr) {
    return absl::InternalError(absl::StrCat("gRPC makes no TLS of ", files.certificate));
  }
  return credentials;
}

}  // namespace muster
