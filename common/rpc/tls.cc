#include "common/rpc/tls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/certs/certificate.h"
#include "common/certs/subject.h"
#include "common/rpc/connections.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster {
namespace {

namespace tls = grpc::experimental;

std::string Text(grpc::string_ref text) { return std::string(text.data(), text.size()); }

// Checks the server's certificate beyond the handshake, which has proved that a trusted CA issued
// it. The certificate must be for this host, and for a coordinator: otherwise every agent could act
// as a coordinator.
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

namespace {

// The object that gRPC asks about each call, on the thread that reads the connection.
class Processor {
 public:
  static grpc_auth_metadata_processor For(std::shared_ptr<CallLimit> limit) {
    return {.process =
                [](void* state, grpc_auth_context* connection, const grpc_metadata*, size_t,
                   grpc_process_auth_metadata_done_cb done, void* call) {
                  const absl::Status begins = static_cast<Processor*>(state)->Begins(connection);
                  done(call, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(begins.code()),
                       begins.ok() ? nullptr : std::string(begins.message()).c_str());
                },
            .destroy = [](void* state) { delete static_cast<Processor*>(state); },
            .state = new Processor(std::move(limit))};
  }

 private:
  explicit Processor(std::shared_ptr<CallLimit> limit) : limit_(std::move(limit)) {}

  absl::Status Begins(grpc_auth_context* connection) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (!NumberOf(connection).has_value()) {
        grpc_auth_context_add_cstring_property(connection, kConnectionNumber,
                                               limit_->NewConnection(Transport::kTcp).c_str());
      }
    }
    return limit_->Begins(NumberOf(connection));
  }
  static std::optional<CallCounts::Connection> NumberOf(const grpc_auth_context* connection) {
    grpc_auth_property_iterator values =
        grpc_auth_context_find_properties_by_name(connection, kConnectionNumber);
    const grpc_auth_property* value = grpc_auth_property_iterator_next(&values);
    if (value == nullptr) return std::nullopt;
    return ConnectionNumber(absl::string_view(value->value, value->value_length));
  }

  const std::shared_ptr<CallLimit> limit_;
  // A connection's properties have no lock of their own, and gRPC may process two of its first
  // calls at once. Each call takes this lock. So the property is written once, before any handler
  // of the connection reads it.
  absl::Mutex mutex_;
};

// gRPC's C++ wrapper of these credentials takes no processor; the core library does.
class Plain final : public grpc::ServerCredentials {
 public:
  explicit Plain(std::shared_ptr<CallLimit> limit) : limit_(std::move(limit)) {}
  // Ignored: these credentials have their own processor.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    std::abort();
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    grpc_server_credentials* credentials = grpc_insecure_server_credentials_create();
    grpc_server_credentials_set_auth_metadata_processor(credentials, Processor::For(limit_));
    const int port = grpc_server_add_http2_port(server, address.c_str(), credentials);
    grpc_server_credentials_release(credentials);
    return port;
  }

  const std::shared_ptr<CallLimit> limit_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> PlainCredentials(std::shared_ptr<CallLimit> limit) {
  return std::make_shared<Plain>(std::move(limit));
}

}  // namespace muster
