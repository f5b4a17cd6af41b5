// Every method of every service, over real connections, for every kind of caller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/certs/deny_list.h"
#include "common/rpc/access.h"
#include "common/rpc/all_methods.h"
#include "common/rpc/test_authority.h"
#include "common/rpc/test_server.h"
#include "common/rpc/tls.h"

namespace muster {
namespace {

using certs::Role;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EveryMethodTest : public testing::Test {
 protected:
  EveryMethodTest() : server_(TestServer::AtPort(ServerTls(coordinator_, authorize_).value())) {}

  std::shared_ptr<grpc::Channel> Connect(std::shared_ptr<grpc::ChannelCredentials> credentials) {
    return NewChannel(server_->address(), std::move(credentials));
  }
  std::shared_ptr<grpc::Channel> ConnectAs(const certs::TlsFiles& files) {
    return Connect(ClientTls(files).value());
  }
  // Checks that the calls reach no method, and each ends with this code.
  void ExpectAllRefused(const std::shared_ptr<grpc::Channel>& channel, grpc::StatusCode code,
                        const std::string& why = "") {
    for (const std::string& method : AllMethods()) {
      const grpc::Status status = Call(channel, method);
      EXPECT_EQ(status.error_code(), code) << method << ": " << status.error_message();
      EXPECT_THAT(status.error_message(), HasSubstr(why)) << method;
    }
    EXPECT_THAT(server_->TakeSeen(), IsEmpty());
  }
  void ExpectAsTheTableSays(const std::shared_ptr<grpc::Channel>& channel, Role role) {
    for (const std::string& method : AllMethods()) {
      const std::vector<Role>& roles = AccessTable().at(method);
      const bool allowed = std::count(roles.begin(), roles.end(), role) > 0;
      const grpc::Status status = Call(channel, method);
      EXPECT_EQ(status.error_code(),
                allowed ? grpc::StatusCode::OK : grpc::StatusCode::PERMISSION_DENIED)
          << certs::ToString(role) << " " << method << ": " << status.error_message();
      const std::vector<SeenCall> seen = server_->TakeSeen();
      ASSERT_THAT(seen, SizeIs(allowed ? 1 : 0)) << method;
      if (!allowed) continue;
      EXPECT_EQ(seen[0].method, method);
      EXPECT_EQ(ToString(seen[0].caller), certs::ToString(role) + "/one");
    }
  }
  void PassTime(absl::Duration time) {
    absl::MutexLock lock(&mutex_);
    now_ += time;
  }

  TestAuthority authority_;
  TestAuthority other_authority_;
  const certs::TlsFiles coordinator_ = authority_.Issue(Role::kCoordinator, "main");
  absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::UnixEpoch();
  const std::unique_ptr<certs::DenyList> denied_ =
      certs::DenyList::Load(authority_.folder() + "/revoked", {.now =
                                                                   [this] {
                                                                     absl::MutexLock lock(&mutex_);
                                                                     return now_;
                                                                   }})
          .value();
  const Authorizer authorize_ = [this](const Caller& caller, const std::string& method) {
    return Authorize(caller, method, *denied_);
  };
  const std::unique_ptr<TestServer> server_;
};

TEST_F(EveryMethodTest, IsOpenToEachRoleAsTheTableSays) {
  for (const Role role : {Role::kReader, Role::kOperator, Role::kAgent, Role::kWorker}) {
    ExpectAsTheTableSays(ConnectAs(authority_.Issue(role, "one")), role);
  }
}

TEST_F(EveryMethodTest, IsClosedToWhoSpeaksNoTls) {
  ExpectAllRefused(Connect(grpc::InsecureChannelCredentials()), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(EveryMethodTest, IsClosedWithoutACertificate) {
  ExpectAllRefused(Connect(UncheckedTls({}, authority_.ca())), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(EveryMethodTest, IsClosedToACertificateOfAnotherAuthority) {
  const certs::TlsFiles files = other_authority_.Issue(Role::kOperator, "one");
  ExpectAllRefused(Connect(UncheckedTls(files, authority_.ca())), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(EveryMethodTest, IsClosedToAnExpiredCertificate) {
  const certs::TlsFiles files = authority_.IssueExpired(Role::kOperator, "one");
  ExpectAllRefused(Connect(UncheckedTls(files, authority_.ca())), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(EveryMethodTest, IsClosedToTheCertificateOfACoordinator) {
  // A coordinator's certificate is for servers only, so the handshake fails.
  ExpectAllRefused(Connect(UncheckedTls(coordinator_, authority_.ca())),
                   grpc::StatusCode::UNAVAILABLE);
}

TEST_F(EveryMethodTest, IsClosedToARevokedCertificateAlsoOverAConnectionThatExists) {
  const certs::TlsFiles files = authority_.Issue(Role::kOperator, "one");
  const auto before = ConnectAs(files);
  ExpectAsTheTableSays(before, Role::kOperator);
  ASSERT_TRUE(certs::Revoke(authority_.folder(), "operator/one", absl::Now()).ok());
  PassTime(certs::DenyList::kInterval);
  ExpectAllRefused(before, grpc::StatusCode::PERMISSION_DENIED, "is revoked");
  ExpectAllRefused(ConnectAs(files), grpc::StatusCode::PERMISSION_DENIED, "is revoked");
  // A new certificate of the same name counts.
  ExpectAsTheTableSays(ConnectAs(authority_.Issue(Role::kOperator, "one")), Role::kOperator);
}

}  // namespace
}  // namespace muster
