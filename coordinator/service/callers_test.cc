// All methods of all services of a running coordinator with certificates, for every kind of caller.
// A refused call has an ErrorInfo, and an allowed call reaches its service.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/certs/authority.h"
#include "common/certs/deny_list.h"
#include "common/files/files.h"
#include "common/rpc/access.h"
#include "common/rpc/all_methods.h"
#include "common/rpc/error.h"
#include "common/rpc/test_authority.h"
#include "common/rpc/test_server.h"
#include "common/rpc/tls.h"
#include "common/steady/now.h"
#include "coordinator/service/coordinator_fixture.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

using certs::Role;

class Callers : public testing::Test {
 protected:
  void SetUp() override {
    auto store = store::SqliteStore::Open(dir_.Path("state"));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    revoked_ = certs::DenyList::Load(authority_.folder() + "/revoked", {.now = SteadyNow}).value();
    CoordinatorOptions options{
        .server = {.listen = {"127.0.0.1:0"},
                   .tls = authority_.Issue(Role::kCoordinator, "main"),
                   .authorize = [this](const Caller& caller, const std::string& method) {
                     return Authorize(caller, method, *revoked_);
                   }}};
    // The lease is longer than the test.
    options.timing.lease = absl::Minutes(10);
    auto coordinator = Coordinator::Start(options, store_.get());
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
  }

  std::shared_ptr<grpc::Channel> Connect(std::shared_ptr<grpc::ChannelCredentials> credentials) {
    return NewChannel(ToString(coordinator_->addresses().front()), std::move(credentials));
  }

  // Checks that the call reaches no service, and that its error has all details.
  void ExpectRefused(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& reason, const std::string& who) {
    const absl::Status status = FromGrpc(Call(channel, method));
    const std::string where = method + ": " + status.ToString();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << where;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(who)) << where;
    if (!IsRefusedByItsService(method)) return;  // gRPC drops the details
    EXPECT_EQ(ErrorDomain(status), "muster") << where;
    EXPECT_EQ(ErrorReason(status), reason) << where;
    auto about = ErrorMetadata(status);
    EXPECT_EQ(about["caller"], who) << where;
    EXPECT_EQ(about["next"], NextStep(reason)) << where;
    if (reason == "ROLE_NOT_ALLOWED") EXPECT_EQ(about["method"], method) << where;
  }

  const files::TempDir dir_;
  TestAuthority authority_;
  std::unique_ptr<certs::DenyList> revoked_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(Callers, EachRoleIsHeardAsTheTableSays) {
  int allowed = 0, refused = 0;
  for (const Role role : {Role::kReader, Role::kOperator, Role::kAgent, Role::kWorker}) {
    const auto channel = Connect(ClientTls(authority_.Issue(role, "one")).value());
    for (const std::string& method : AllMethods()) {
      const std::vector<Role>& roles = AccessTable().at(method);
      if (std::count(roles.begin(), roles.end(), role) == 0) {
        ExpectRefused(channel, method, "ROLE_NOT_ALLOWED", certs::ToString(role) + "/one");
        ++refused;
      } else if (IsRefusedByItsService(method)) {
        // The request is empty, so the service may return any other error.
        const absl::Status status = FromGrpc(Call(channel, method));
        EXPECT_NE(status.code(), absl::StatusCode::kPermissionDenied) << method << status;
        EXPECT_NE(status.code(), absl::StatusCode::kUnauthenticated) << method << status;
        EXPECT_NE(status.code(), absl::StatusCode::kUnavailable) << method << status;
        ++allowed;
      }
    }
  }
  EXPECT_GT(allowed, 40);
  EXPECT_GT(refused, 80);
}

TEST_F(Callers, ARevokedCertificateIsHeardNowhere) {
  for (const Role role : {Role::kReader, Role::kOperator, Role::kAgent, Role::kWorker}) {
    const auto files = authority_.Issue(role, "gone");
    const std::string name = certs::ToString(role) + "/gone";
    ASSERT_TRUE(certs::Revoke(authority_.folder(), name, absl::Now()).ok());
    // A list is read again only once in an interval.
    revoked_ = certs::DenyList::Load(authority_.folder() + "/revoked", {.now = SteadyNow}).value();
    const auto channel = Connect(ClientTls(files).value());
    for (const std::string& method : AllMethods()) {
      ExpectRefused(channel, method, "CERTIFICATE_REVOKED", name);
    }
  }
}

TEST_F(Callers, WhoHasNoCertificateThatCountsDoesNotEvenConnect) {
  TestAuthority other;
  const std::vector<std::shared_ptr<grpc::ChannelCredentials>> strangers = {
      grpc::InsecureChannelCredentials(),
      UncheckedTls({}, authority_.ca()),
      UncheckedTls(other.Issue(Role::kOperator, "one"), authority_.ca()),
      UncheckedTls(authority_.IssueExpired(Role::kOperator, "one"), authority_.ca()),
  };
  for (size_t i = 0; i < strangers.size(); ++i) {
    const auto channel = Connect(strangers[i]);
    for (const std::string& method : AllMethods()) {
      EXPECT_EQ(Call(channel, method).error_code(), grpc::StatusCode::UNAVAILABLE)
          << i << " " << method;
    }
  }
}

TEST_F(Callers, AReaderDoesNotLearnWhatLiesOnTheCoordinatorsHost) {
  // Only callers who could write this file may learn whether it exists and whose file it is.
  const std::string path = dir_.Path("export.safetensors");
  ASSERT_TRUE(files::WriteAtomically(path, "of somebody").ok());
  for (const Role role : {Role::kOperator, Role::kReader}) {
    const auto jobs =
        v1::JobService::NewStub(Connect(ClientTls(authority_.Issue(role, "one")).value()));
    v1::ValidateJobRequest request;
    *request.mutable_spec() = Spec();
    request.mutable_spec()->mutable_export_()->set_path(path);
    grpc::ClientContext context;
    v1::ValidateJobResponse response;
    const grpc::Status status = jobs->ValidateJob(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.problems_size(), role == Role::kOperator ? 1 : 0)
        << response.ShortDebugString();
  }
}

}  // namespace
}  // namespace muster::service
