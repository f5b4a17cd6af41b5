#include "common/certs/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "common/certs/authority.h"
#include "common/certs/pem_file.h"
#include "common/certs/subject.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::certs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kDay = absl::Hours(24);

class TlsFilesTest : public testing::Test {
 protected:
  TlsFilesTest() {
    for (const char* ca : {"ca", "other"}) {
      EXPECT_TRUE(InitAuthority({.folder = folder_.Path(ca), .days = 100, .now = kNow}).ok());
    }
    alice_ = MustIssue("ca", "alice");
  }

  TlsFiles MustIssue(const std::string& ca, const std::string& name) {
    const auto issued = Issue({.authority = folder_.Path(ca),
                               .subject = {Role::kOperator, name},
                               .days = 10,
                               .out = folder_.Path("out-" + ca),
                               .now = kNow});
    EXPECT_TRUE(issued.ok()) << issued.status();
    return issued->files;
  }
  // Checks that the files are refused with a message that has the file and `why`.
  void ExpectRefused(const TlsFiles& files, Code code, const std::string& file,
                     const std::string& why, absl::Time now = kNow) {
    const absl::Status status = CheckTlsFiles(files, Side::kClient, now).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(file), HasSubstr(why)));
  }

  files::TempDir folder_;
  TlsFiles alice_;
};

TEST_F(TlsFilesTest, GoodOnesAreAccepted) {
  const auto own = CheckTlsFiles(alice_, Side::kClient, kNow);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->common_name, "operator/alice");
}

TEST_F(TlsFilesTest, AllThreeMustBeGiven) {
  ExpectRefused({}, Code::kInvalidArgument, "the certificate is not given", "three files");
  ExpectRefused({.certificate = alice_.certificate, .ca = alice_.ca}, Code::kInvalidArgument,
                "the key is not given", "three files");
  ExpectRefused({.certificate = alice_.certificate, .key = alice_.key}, Code::kInvalidArgument,
                "the CA's certificate is not given", "three files");
}

TEST_F(TlsFilesTest, AMissingOrStrangeFileIsNamed) {
  const std::string nowhere = folder_.Path("nowhere");
  for (std::string TlsFiles::* file : {&TlsFiles::certificate, &TlsFiles::key, &TlsFiles::ca}) {
    TlsFiles files = alice_;
    files.*file = nowhere;
    ExpectRefused(files, Code::kNotFound, nowhere, "No such file");
    files.*file = "/dev/zero";
    ExpectRefused(files, Code::kInvalidArgument, "/dev/zero", "not a regular file");
    files.*file = folder_.Path("fifo");
    if (file == &TlsFiles::certificate) {
      ASSERT_EQ(mkfifo((files.*file).c_str(), 0600), 0);
    }
    ExpectRefused(files, Code::kInvalidArgument, files.*file, "not a regular file");
    files.*file = folder_.Path("text");
    ASSERT_TRUE(files::WriteAtomically(files.*file, "hello").ok());
    ExpectRefused(files, Code::kInvalidArgument, files.*file, "expected PEM");
    files.*file = folder_.Path("large");
    ASSERT_TRUE(files::WriteAtomically(files.*file, std::string(kMaxPemBytes + 1, 'x')).ok());
    ExpectRefused(files, Code::kInvalidArgument, files.*file, "at most");
  }
}

TEST_F(TlsFilesTest, AKeyThatEverybodyMayUseIsRefused) {
  ASSERT_EQ(chmod(alice_.key.c_str(), 0644), 0);
  ExpectRefused(alice_, Code::kFailedPrecondition, alice_.key, "chmod 600");
  // The operator decides whether a group may read the key.
  ASSERT_EQ(chmod(alice_.key.c_str(), 0640), 0);
  EXPECT_TRUE(CheckTlsFiles(alice_, Side::kClient, kNow).ok());
}

TEST_F(TlsFilesTest, ACertificateNeedsItsOwnKey) {
  TlsFiles files = alice_;
  files.key = MustIssue("ca", "bob").key;
  ExpectRefused(files, Code::kInvalidArgument, files.key, "do not belong together");
}

TEST_F(TlsFilesTest, ACertificateNeedsItsOwnAuthority) {
  TlsFiles files = alice_;
  files.ca = folder_.Path("other") + "/ca.crt";
  ExpectRefused(files, Code::kInvalidArgument, files.ca, "unable to get local issuer");
  // Both CAs in one file, as during a change of the CA.
  const std::string both = folder_.Path("both.crt");
  ASSERT_TRUE(files::WriteAtomically(
                  both, files::ReadFile(files.ca).value() + files::ReadFile(alice_.ca).value())
                  .ok());
  files.ca = both;
  EXPECT_TRUE(CheckTlsFiles(files, Side::kClient, kNow).ok());
}

TEST_F(TlsFilesTest, TimesAreChecked) {
  const absl::Time end = kNow + 10 * kDay;
  EXPECT_TRUE(CheckTlsFiles(alice_, Side::kClient, end - absl::Seconds(1)).ok());
  const absl::Time early = kNow - kBackdated - kClockLeeway;
  EXPECT_TRUE(CheckTlsFiles(alice_, Side::kClient, early).ok());
  ExpectRefused(alice_, Code::kFailedPrecondition, alice_.certificate, "expired", end);
  ExpectRefused(alice_, Code::kFailedPrecondition, alice_.certificate, "not valid before",
                early - absl::Seconds(1));
}

TEST_F(TlsFilesTest, AServerNeedsACoordinatorsCertificate) {
  const absl::Status status = CheckTlsFiles(alice_, Side::kServer, kNow).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("operator/alice"), HasSubstr("muster certs issue coordinator")));
}

}  // namespace
}  // namespace muster::certs
