#include "common/rpc/caller_processor.h"

#include <grpc/grpc_security_constants.h>

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/certs/certificate.h"
#include "common/rpc/connections.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster {
namespace {

absl::Status Unauthenticated(const std::string& why) {
  return absl::UnauthenticatedError(
      absl::StrCat("the certificate of this connection does not count: ", why));
}

absl::StatusOr<Caller> FromCertificate(const grpc::AuthContext& connection) {
  const std::vector<grpc::string_ref> pem =
      connection.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pem.empty()) return Unauthenticated("there is none");
  const auto certificate =
      certs::ParseCertificate(std::string(pem.front().data(), pem.front().size()));
  if (!certificate.ok()) return Unauthenticated(Message(certificate.status()));
  const absl::Status times = certs::CheckTimes(*certificate, absl::Now());
  if (!times.ok()) return Unauthenticated(Message(times));
  if (certificate->serial.empty()) return Unauthenticated("it has no positive serial number");
  return Caller{.kind = Caller::Kind::kCertificate,
                .name = certificate->common_name,
                .serial = certificate->serial};
}

}  // namespace

std::shared_ptr<CallerProcessor> CallerProcessor::ForUser(uid_t uid, Authorizer authorize,
                                                          std::shared_ptr<CallLimit> limit) {
  return std::shared_ptr<CallerProcessor>(
      new CallerProcessor(uid, std::move(authorize), std::move(limit)));
}

std::shared_ptr<CallerProcessor> CallerProcessor::ForCertificates(
    Authorizer authorize, std::shared_ptr<CallLimit> limit) {
  return std::shared_ptr<CallerProcessor>(
      new CallerProcessor(std::nullopt, std::move(authorize), std::move(limit)));
}

CallerProcessor::CallerProcessor(std::optional<uid_t> uid, Authorizer authorize,
                                 std::shared_ptr<CallLimit> limit)
    : uid_(uid), authorize_(std::move(authorize)), limit_(std::move(limit)) {}

grpc::Status CallerProcessor::Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                                      OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) {
  const absl::Status identified = IdentifyOnce(connection);
  if (!identified.ok()) return ToGrpc(identified);
  const auto path = metadata.find(":path");
  if (path == metadata.end()) {
    return ToGrpc(absl::InternalError("gRPC does not say which method this call is of"));
  }
  const absl::Status allowed = authorize_(IdentifiedCaller(*connection),
                                          std::string(path->second.data(), path->second.size()));
  if (!allowed.ok() || limit_ == nullptr) return ToGrpc(allowed);
  return ToGrpc(limit_->Begins(ConnectionNumber(*connection)));
}

absl::Status CallerProcessor::IdentifyOnce(grpc::AuthContext* connection) {
  absl::MutexLock lock(&mutex_);
  if (IsIdentified(*connection)) return absl::OkStatus();
  Caller caller{.kind = Caller::Kind::kUser, .uid = uid_.value_or(0)};
  if (!uid_.has_value()) {
    ASSIGN_OR_RETURN(caller, FromCertificate(*connection));
  }
  Identify(caller, connection);
  if (limit_ != nullptr) {
    const Transport transport = uid_.has_value() ? Transport::kLocal : Transport::kTcp;
    connection->AddProperty(kConnectionNumber, limit_->NewConnection(transport));
  }
  return absl::OkStatus();
}

}  // namespace muster
