#include "common/rpc/caller_processor.h"

#include <gmock/gmock.h>
#include <grpc/grpc_security_constants.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/certs/authority.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/rpc/test_authority.h"
#include "common/rpc/test_server.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kGet[] = "/muster.v1.JobService/GetJob";
constexpr char kSubmit[] = "/muster.v1.JobService/SubmitJob";

std::shared_ptr<grpc::ServerCredentials> ForUser(uid_t uid, Authorizer authorize) {
  auto credentials = grpc::experimental::LocalServerCredentials(UDS);
  credentials->SetAuthMetadataProcessor(CallerProcessor::ForUser(uid, std::move(authorize)));
  return credentials;
}

// A connection without gRPC: the results of a handshake, as properties.
class FakeConnection : public grpc::AuthContext {
 public:
  explicit FakeConnection(const std::string& certificate) {
    if (!certificate.empty()) properties_[GRPC_X509_PEM_CERT_PROPERTY_NAME] = certificate;
  }
  std::vector<grpc::string_ref> FindPropertyValues(const std::string& name) const override {
    if (name == GRPC_X509_PEM_CERT_PROPERTY_NAME) ++certificate_reads_;
    const auto found = properties_.find(name);
    if (found == properties_.end()) return {};
    return {grpc::string_ref(found->second)};
  }
  void AddProperty(const std::string& name, const grpc::string_ref& value) override {
    properties_[name] = std::string(value.data(), value.size());
  }
  int certificate_reads() const { return certificate_reads_; }

  bool IsPeerAuthenticated() const override { return true; }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return {}; }
  std::string GetPeerIdentityPropertyName() const override { return ""; }
  bool SetPeerIdentityPropertyName(const std::string& /*name*/) override { return false; }
  grpc::AuthPropertyIterator begin() const override { return Nothing(); }
  grpc::AuthPropertyIterator end() const override { return Nothing(); }

 private:
  struct Nothing : grpc::AuthPropertyIterator {};

  std::map<std::string, std::string> properties_;
  mutable int certificate_reads_ = 0;
};

grpc::Status Process(CallerProcessor* processor, FakeConnection* connection) {
  return processor->Process({{":path", kGet}}, connection, nullptr, nullptr);
}

TEST(CallerProcessor, ARefusedCallReachesNoServiceAndTheClientLearnsWhy) {
  const files::TempDir folder = files::TempDir::Short();
  const auto server = TestServer::AtPath(
      folder.Path("s"), ForUser(4711, [](const Caller& caller, const std::string& method) {
        if (method == kGet) return absl::OkStatus();
        return absl::PermissionDeniedError("not for " + ToString(caller) + ": " + method);
      }));
  const auto channel = NewChannel(server->address(), grpc::InsecureChannelCredentials());
  const grpc::Status refused = Call(channel, kSubmit);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(refused.error_message(), std::string("not for uid 4711: ") + kSubmit);
  EXPECT_THAT(server->TakeSeen(), IsEmpty());
  EXPECT_TRUE(Call(channel, kGet).ok());
  EXPECT_THAT(server->TakeSeen(), SizeIs(1));
}

// Several threads process a connection's first calls; each call must know its caller.
TEST(CallerProcessor, ManyFirstCallsAtOnceAllKnowTheirCaller) {
  constexpr int kCalls = 16;
  const files::TempDir folder = files::TempDir::Short();
  const auto server = TestServer::AtPath(
      folder.Path("s"), ForUser(4711, [](const Caller& caller, const std::string&) {
        return caller.kind == Caller::Kind::kUser ? absl::OkStatus()
                                                  : absl::PermissionDeniedError("who?");
      }));
  for (int round = 0; round < 5; ++round) {
    const auto channel = NewChannel(server->address(), grpc::InsecureChannelCredentials());
    std::vector<std::thread> callers;
    for (int i = 0; i < kCalls; ++i) {
      callers.emplace_back([&] { EXPECT_TRUE(Call(channel, kGet).ok()); });
    }
    for (std::thread& one : callers) one.join();
    const std::vector<SeenCall> seen = server->TakeSeen();
    ASSERT_THAT(seen, SizeIs(kCalls));
    for (const SeenCall& call : seen) EXPECT_EQ(call.caller.uid, 4711);
  }
}

TEST(CallerProcessor, AConnectionsCertificateIsReadOnce) {
  TestAuthority authority;
  const certs::TlsFiles files = authority.Issue(certs::Role::kReader, "bob");
  FakeConnection connection(files::ReadFile(files.certificate).value());
  std::vector<std::string> callers;
  const auto processor =
      CallerProcessor::ForCertificates([&](const Caller& caller, const std::string& method) {
        callers.push_back(ToString(caller) + " " + method);
        return absl::OkStatus();
      });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Process(processor.get(), &connection).ok());
  EXPECT_EQ(callers, std::vector<std::string>(3, std::string("reader/bob ") + kGet));
  EXPECT_EQ(connection.certificate_reads(), 1);
}

// TLS allows to resume a session after the certificate with which it began has expired.
TEST(CallerProcessor, ACertificateThatDoesNotCountIsUnauthenticated) {
  TestAuthority authority;
  const certs::TlsFiles expired = authority.IssueExpired(certs::Role::kOperator, "alice");
  const auto processor =
      CallerProcessor::ForCertificates([](const Caller& caller, const std::string&) {
        ADD_FAILURE() << ToString(caller);
        return absl::OkStatus();
      });
  for (const auto& [pem, why] : std::map<std::string, std::string>{
           {"", "there is none"},
           {"garbage", "no certificate in it"},
           {files::ReadFile(expired.certificate).value(), "it expired at"}}) {
    FakeConnection connection(pem);
    for (int i = 0; i < 2; ++i) {
      const grpc::Status status = Process(processor.get(), &connection);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
      EXPECT_THAT(status.error_message(), HasSubstr(why));
    }
  }
}

}  // namespace
}  // namespace muster
