#include "common/rpc/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "common/certs/deny_list.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/rpc/all_methods.h"
#include "common/rpc/error.h"

namespace muster {
namespace {

using certs::Role;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Caller Certificate(const std::string& name, const std::string& serial = "1a") {
  return {.kind = Caller::Kind::kCertificate, .name = name, .serial = serial};
}

absl::Status Try(const Caller& caller, const std::string& method) {
  return Authorize(caller, method, *certs::DenyList::None());
}

TEST(AccessTable, NamesEveryMethodAndNoOther) {
  std::set<std::string> named;
  for (const auto& [method, roles] : AccessTable()) {
    named.insert(method);
    EXPECT_FALSE(roles.empty()) << method;
    EXPECT_THAT(roles, Not(Contains(Role::kCoordinator))) << method;
  }
  EXPECT_EQ(named, AllMethods());
  EXPECT_THAT(named, Contains("/muster.v1.WorkerService/Attach"));
}

TEST(AccessTable, NobodyMayCallAMethodWithoutARole) {
  EXPECT_THAT(RolesOf(v1::Caller::ROLE_UNSPECIFIED), IsEmpty());
  EXPECT_THAT(RolesOf(static_cast<v1::Caller::Role>(1000)), IsEmpty());
}

TEST(AccessTable, ARoleOfAMethodStandsForTheRolesThatMayDoAsMuch) {
  EXPECT_THAT(RolesOf(v1::Caller::READER), ElementsAre(Role::kReader, Role::kOperator));
  EXPECT_THAT(RolesOf(v1::Caller::OPERATOR), ElementsAre(Role::kOperator));
  EXPECT_THAT(RolesOf(v1::Caller::AGENT), ElementsAre(Role::kAgent));
  EXPECT_THAT(RolesOf(v1::Caller::WORKER), ElementsAre(Role::kAgent, Role::kWorker));
  // Methods that give out weights, or a copy of the store, are for operators.
  for (const std::string method :
       {"/muster.v1.OperationService/Download", "/muster.v1.ClusterService/Backup"}) {
    EXPECT_THAT(AccessTable().at(method), ElementsAre(Role::kOperator)) << method;
  }
  EXPECT_THAT(AccessTable().at("/muster.v1.AgentService/SendFile"), ElementsAre(Role::kAgent));
  EXPECT_THAT(AccessTable().at("/muster.v1.WorkerService/Attach"),
              ElementsAre(Role::kAgent, Role::kWorker));
}

TEST(AccessTable, OnlyMethodsThatReadAreForReaders) {
  for (const auto& [method, roles] : AccessTable()) {
    const bool reads =
        method.find("/Get") != std::string::npos || method.find("/List") != std::string::npos ||
        method.find("/Stream") != std::string::npos || method.find("/Watch") != std::string::npos ||
        method.find("/Wait") != std::string::npos || method.find("/Parse") != std::string::npos ||
        method.find("/Validate") != std::string::npos || method.find("/grpc.") == 0;
    EXPECT_EQ(reads, std::count(roles.begin(), roles.end(), Role::kReader) > 0) << method;
  }
}

TEST(Authorize, ADeniedCallSaysWhoWhatWhoMayAndWhatNext) {
  const absl::Status status = Try(Certificate("reader/bob"), "/muster.v1.JobService/SubmitJob");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrorReason(status), "ROLE_NOT_ALLOWED");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("reader/bob"), HasSubstr("/muster.v1.JobService/SubmitJob"),
                    HasSubstr("role operator"), HasSubstr("muster certs issue")));
}

TEST(Authorize, ACertificateWithoutARoleMayCallNothing) {
  for (const std::string& method : AllMethods()) {
    EXPECT_EQ(ErrorReason(Try(Certificate("alice"), method)), "ROLE_UNKNOWN") << method;
    EXPECT_EQ(ErrorReason(Try(Certificate(""), method)), "ROLE_UNKNOWN") << method;
    EXPECT_EQ(ErrorReason(Try(Certificate("coordinator/main"), method)), "ROLE_NOT_ALLOWED")
        << method;
  }
}

// The same error as gRPC's, so that an older server differs from a forbidden method.
TEST(Authorize, AMethodThatIsNotInTheTableIsUnimplemented) {
  for (const std::string role : {"reader", "operator", "agent", "worker"}) {
    for (const std::string method : {"/muster.v1.JobService/Future", ""}) {
      const absl::Status status = Try(Certificate(role + "/one"), method);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << role;
      EXPECT_EQ(ErrorReason(status), "METHOD_UNKNOWN");
      EXPECT_THAT(std::string(status.message()), HasSubstr("'" + method + "'"));
    }
  }
  EXPECT_EQ(ErrorReason(Try(Certificate("bob"), "/muster.v1.JobService/Future")), "ROLE_UNKNOWN");
  EXPECT_EQ(ErrorReason(Try(Certificate("coordinator/a"), "/muster.v1.JobService/Future")),
            "ROLE_NOT_ALLOWED");
}

TEST(Authorize, CallersWithoutACertificateMayCallEverything) {
  for (const std::string& method : AllMethods()) {
    EXPECT_TRUE(Try({.kind = Caller::Kind::kUser, .uid = 1000}, method).ok()) << method;
    EXPECT_TRUE(Try({.kind = Caller::Kind::kInsecure}, method).ok()) << method;
  }
}

TEST(Authorize, ARevokedCertificateMayCallNothingAndAnotherOfTheSameNameMay) {
  const files::TempDir folder;
  ASSERT_TRUE(files::WriteAtomically(folder.Path("revoked"), "1a\n").ok());
  const auto list =
      certs::DenyList::Load(folder.Path("revoked"), {.now = [] { return absl::UnixEpoch(); }});
  ASSERT_TRUE(list.ok()) << list.status();
  for (const std::string& method : AllMethods()) {
    const absl::Status status = Authorize(Certificate("operator/alice", "1a"), method, **list);
    EXPECT_EQ(ErrorReason(status), "CERTIFICATE_REVOKED") << method;
    EXPECT_THAT(std::string(status.message()), HasSubstr("1a is revoked"));
  }
  EXPECT_TRUE(
      Authorize(Certificate("operator/alice", "2b"), "/muster.v1.JobService/GetJob", **list).ok());
}

TEST(AgentMayBe, ACertificateIsForItsNodeOnly) {
  EXPECT_TRUE(AgentMayBe(Certificate("agent/node1"), "node1").ok());
  for (const auto& [name, node] : std::map<std::string, std::string>{{"agent/node1", "node2"},
                                                                     {"agent/node10", "node1"},
                                                                     {"worker/node1", "node1"},
                                                                     {"operator/node1", "node1"},
                                                                     {"node1", "node1"}}) {
    const absl::Status status = AgentMayBe(Certificate(name), node);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << name;
    EXPECT_EQ(ErrorReason(status), "NODE_NOT_ALLOWED");
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(name), HasSubstr("agent/" + node)));
  }
}

TEST(AgentMayBe, CallersWithoutACertificateMayBeEveryNode) {
  EXPECT_TRUE(AgentMayBe({.kind = Caller::Kind::kUser, .uid = 0}, "node1").ok());
  EXPECT_TRUE(AgentMayBe({.kind = Caller::Kind::kInsecure}, "node1").ok());
}

TEST(AgentMayBe, ANodesNameIsShownWithoutItsControlCharacters) {
  const absl::Status status = AgentMayBe(Certificate("agent/a"), "\x1b[31m");
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("\\x1b[31m"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace muster
