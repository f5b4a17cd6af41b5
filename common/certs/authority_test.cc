#include "common/certs/authority.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/x509v3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/certs/openssl.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::certs {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kDay = absl::Hours(24);

mode_t ModeOf(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

class AuthorityTest : public testing::Test {
 protected:
  AuthorityTest() { EXPECT_TRUE(InitAuthority({.folder = ca_, .days = 100, .now = kNow}).ok()); }

  NewCertificate For(Role role, const std::string& name) {
    NewCertificate options{.authority = ca_,
                           .subject = {role, name},
                           .days = 10,
                           .out = folder_.Path("out"),
                           .now = kNow};
    if (role == Role::kCoordinator) options.hosts = {"gpu1.example.com", "10.0.0.7", "fd00::7"};
    return options;
  }
  std::string MustIssue(NewCertificate options) {
    options.if_exists = IfExists::kReplace;
    const auto issued = Issue(options);
    EXPECT_TRUE(issued.ok()) << issued.status();
    return issued.ok() ? issued->certificate.serial : "";
  }
  void ExpectRefused(const NewCertificate& options, absl::StatusCode code, const std::string& why) {
    const absl::Status status = Issue(options).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(folder_.Path("out")));
    EXPECT_THAT(*ListIssued(ca_), IsEmpty());
  }
  std::vector<std::string> Serials(const std::vector<Certificate>& certificates) {
    std::vector<std::string> serials;
    for (const Certificate& one : certificates) serials.push_back(one.serial);
    return serials;
  }

  files::TempDir folder_;
  const std::string ca_ = folder_.Path("ca");
};

TEST_F(AuthorityTest, ItsFolderAndKeyAreItsOwnersAlone) {
  EXPECT_EQ(ModeOf(ca_), 0700);
  EXPECT_EQ(ModeOf(ca_ + "/ca.key"), 0600);
  EXPECT_EQ(ModeOf(ca_ + "/issued"), 0700);
  EXPECT_TRUE(std::filesystem::exists(ca_ + "/revoked"));
  const Certificate own = ParseCertificate(files::ReadFile(ca_ + "/ca.crt").value()).value();
  EXPECT_EQ(own.not_before, kNow - kBackdated);
  EXPECT_EQ(own.not_after, kNow + 100 * kDay);
}

TEST_F(AuthorityTest, WhatItIssuesCountsOnItsSideAndOnNoOther) {
  for (const Role role :
       {Role::kCoordinator, Role::kReader, Role::kOperator, Role::kAgent, Role::kWorker}) {
    const auto issued = Issue(For(role, "one-" + ToString(role)));
    ASSERT_TRUE(issued.ok()) << issued.status();
    EXPECT_EQ(ModeOf(issued->files.key), 0600);
    const bool server = role == Role::kCoordinator;
    const auto own = CheckTlsFiles(issued->files, server ? Side::kServer : Side::kClient, kNow);
    ASSERT_TRUE(own.ok()) << own.status();
    EXPECT_EQ(own->common_name, ToString(role) + "/one-" + ToString(role));
    EXPECT_EQ(own->serial, issued->certificate.serial);
    EXPECT_EQ(own->not_before, kNow - kBackdated);
    EXPECT_EQ(own->not_after, kNow + 10 * kDay);
    EXPECT_EQ(own->hosts, For(role, "one").hosts);
    // Programs that ignore the role must refuse the certificate, too.
    const auto certificates =
        ReadCertificates(files::ReadFile(issued->files.certificate).value()).value();
    X509* certificate = certificates.front().get();
    EXPECT_EQ(X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0), server ? 1 : 0);
    EXPECT_EQ(X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0), server ? 0 : 1);
    EXPECT_EQ(X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 1), 0) << "it is a CA";
  }
}

TEST_F(AuthorityTest, SerialNumbersAreLongAndDiffer) {
  const std::string first = MustIssue(For(Role::kReader, "bob"));
  const std::string second = MustIssue(For(Role::kReader, "bob"));
  EXPECT_NE(first, second);
  for (const std::string& serial : {first, second}) EXPECT_GE(serial.size(), 31) << serial;
}

TEST_F(AuthorityTest, ABadRequestIsRefusedBeforeAnythingIsWritten) {
  using Code = absl::StatusCode;
  NewCertificate options = For(Role::kReader, "a/b");
  ExpectRefused(options, Code::kInvalidArgument, "letters, digits");
  ExpectRefused(For(Role::kReader, "ca"), Code::kInvalidArgument, "choose another name");
  options = For(Role::kCoordinator, "main");
  options.hosts.clear();
  ExpectRefused(options, Code::kInvalidArgument, "add --host HOST");
  options.hosts = {"gpu1:7070"};
  ExpectRefused(options, Code::kInvalidArgument, "without a port");
  options.hosts = {"a,DNS:evil"};
  ExpectRefused(options, Code::kInvalidArgument, "neither the name nor the address");
  options = For(Role::kAgent, "node1");
  options.hosts = {"node1"};
  ExpectRefused(options, Code::kInvalidArgument, "--host is for coordinators");
  options = For(Role::kAgent, "node1");
  options.days = 0;
  ExpectRefused(options, Code::kInvalidArgument, "0 days");
  options.days = 101;
  ExpectRefused(options, Code::kInvalidArgument, "--days may be up to 100");
  options = For(Role::kAgent, "node1");
  options.now = kNow + 101 * kDay;
  ExpectRefused(options, Code::kFailedPrecondition, "expired");
  options = For(Role::kAgent, "node1");
  options.authority = folder_.Path("nowhere");
  ExpectRefused(options, Code::kNotFound, "muster certs init");
  ASSERT_EQ(chmod((ca_ + "/ca.key").c_str(), 0640), 0);
  ExpectRefused(For(Role::kAgent, "node1"), Code::kFailedPrecondition, "chmod 600");
}

TEST_F(AuthorityTest, FilesThatExistStayUnlessTheyAreToBeReplaced) {
  NewCertificate options = For(Role::kAgent, "node1");
  const auto first = Issue(options);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string key = files::ReadFile(first->files.key).value();
  EXPECT_EQ(Issue(options).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(files::ReadFile(first->files.key).value(), key);
  EXPECT_THAT(*ListIssued(ca_), SizeIs(1));
  // Another certificate in the same folder: the CA's certificate is there already, and equal.
  EXPECT_TRUE(Issue(For(Role::kAgent, "node2")).ok());
  ASSERT_TRUE(files::WriteAtomically(first->files.ca, "another CA").ok());
  EXPECT_EQ(Issue(For(Role::kAgent, "node3")).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("out/node3.key")));

  options.if_exists = IfExists::kReplace;
  ASSERT_TRUE(Issue(options).ok());
  EXPECT_NE(files::ReadFile(first->files.key).value(), key);
  EXPECT_TRUE(CheckTlsFiles(first->files, Side::kClient, kNow).ok());
}

TEST_F(AuthorityTest, AFolderOfOthersIsNotTaken) {
  const absl::Status again = InitAuthority({.folder = ca_, .now = kNow}).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.message()), HasSubstr("--overwrite"));

  const std::string home = folder_.Path("home");
  std::filesystem::create_directory(home);
  ASSERT_TRUE(files::WriteAtomically(home + "/letter", "dear").ok());
  const mode_t before = ModeOf(home);
  EXPECT_EQ(
      InitAuthority({.folder = home, .if_exists = IfExists::kReplace, .now = kNow}).status().code(),
      absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ModeOf(home), before);
}

TEST_F(AuthorityTest, ANewOneInItsPlaceForgetsWhatTheOldOneIssued) {
  const auto issued = Issue(For(Role::kReader, "bob"));
  ASSERT_TRUE(issued.ok()) << issued.status();
  ASSERT_TRUE(InitAuthority({.folder = ca_, .if_exists = IfExists::kReplace, .now = kNow}).ok());
  EXPECT_THAT(*ListIssued(ca_), IsEmpty());
  TlsFiles files = issued->files;
  files.ca = ca_ + "/ca.crt";
  EXPECT_EQ(CheckTlsFiles(files, Side::kClient, kNow).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(AuthorityTest, RevokesAllCertificatesOfANameOrOneByItsSerialNumber) {
  const std::string first = MustIssue(For(Role::kOperator, "alice"));
  const std::string second = MustIssue(For(Role::kOperator, "alice"));
  const std::string bob = MustIssue(For(Role::kReader, "bob"));
  const auto by_serial = Revoke(ca_, first, kNow);
  ASSERT_TRUE(by_serial.ok()) << by_serial.status();
  EXPECT_THAT(Serials(by_serial->revoked), ElementsAre(first));

  const auto by_name = Revoke(ca_, "alice", kNow);
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  EXPECT_THAT(Serials(by_name->revoked), ElementsAre(second));
  EXPECT_THAT(Serials(by_name->already), ElementsAre(first));
  EXPECT_THAT(files::ReadFile(ca_ + "/revoked").value(),
              AllOf(HasSubstr(first + "  # operator/alice"), HasSubstr(second)));
  const std::vector<KnownCertificate> known = ListIssued(ca_).value();
  for (const KnownCertificate& one : known) {
    EXPECT_EQ(one.revoked, one.certificate.serial != bob);
  }
}

TEST_F(AuthorityTest, ANameOfSeveralRolesIsRevokedWithItsRoleOnly) {
  MustIssue(For(Role::kAgent, "node1"));
  const std::string worker = MustIssue(For(Role::kWorker, "node1"));
  const absl::Status status = Revoke(ca_, "node1", kNow).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("agent/node1, worker/node1"));
  const auto revoked = Revoke(ca_, "worker/node1", kNow);
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_THAT(Serials(revoked->revoked), ElementsAre(worker));
}

TEST_F(AuthorityTest, WhatItDoesNotKnowIsRevokedOnlyIfItIsALongSerialNumber) {
  EXPECT_EQ(Revoke(ca_, "alice", kNow).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Revoke(ca_, "abc", kNow).status().code(), absl::StatusCode::kNotFound);
  const auto revoked = Revoke(ca_, "0123456789ABCDEF0123", kNow);
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_EQ(revoked->unknown_serial, "123456789abcdef0123");
  EXPECT_THAT(files::ReadFile(ca_ + "/revoked").value(), HasSubstr("\n123456789abcdef0123"));
}

TEST_F(AuthorityTest, OneProgramAtATimeChangesIt) {
  const int other = open(ca_.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_EQ(Issue(For(Role::kReader, "bob")).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Revoke(ca_, "bob", kNow).status().code(), absl::StatusCode::kAborted);
  close(other);
  EXPECT_TRUE(Issue(For(Role::kReader, "bob")).ok());
}

}  // namespace
}  // namespace muster::certs
