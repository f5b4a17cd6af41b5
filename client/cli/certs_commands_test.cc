// The output and the exit codes of `muster certs`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "client/cli/cli_fixture.h"
#include "common/files/files.h"

namespace muster::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class CertsTest : public CliTest {
 protected:
  ExitCode Certs(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "certs");
    arguments.insert(arguments.end(), {"--ca", folder_.Path("ca")});
    return Muster(arguments);
  }
  void MustInit() { ASSERT_EQ(Certs({"init"}), kDone) << err(); }
  void MustIssue(const std::string& role, const std::string& name) {
    ASSERT_EQ(Certs({"issue", role, name, "--out", folder_.Path("out")}), kDone) << err();
  }
};

TEST_F(CertsTest, ACaIssuesFilesWithWhichItsUsersSpeakTls) {
  MustInit();
  EXPECT_THAT(err(), AllOf(HasSubstr("made a CA in"), HasSubstr("ca.key secret")));
  ASSERT_EQ(Certs({"issue", "coordinator", "main", "--host", "gpu1", "--host", "10.0.0.7", "--out",
                   folder_.Path("out"), "--days", "30"}),
            kDone)
      << err();
  EXPECT_THAT(out(), HasSubstr("coordinator/main, serial number "));
  EXPECT_THAT(err(), HasSubstr(folder_.Path("out/main.key") + " (secret)"));
  struct stat status = {};
  ASSERT_EQ(stat(folder_.Path("out/main.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600);
  EXPECT_EQ(files::ReadFile(folder_.Path("out/ca.crt")).value(),
            files::ReadFile(folder_.Path("ca/ca.crt")).value());

  EXPECT_EQ(Certs({"show"}), kDone);
  EXPECT_THAT(out(), AllOf(HasSubstr("coordinator/main  VALID"), HasSubstr("gpu1, 10.0.0.7")));
  EXPECT_EQ(Certs({"show", folder_.Path("ca/ca.crt"), "-o", "json"}), kDone);
  EXPECT_THAT(out(), HasSubstr("\"name\": \"muster CA of "));
}

TEST_F(CertsTest, RevokedCertificatesAreShownAndListed) {
  MustInit();
  MustIssue("operator", "alice");
  MustIssue("reader", "bob");
  EXPECT_EQ(Certs({"revoke", "alice"}), kDone) << err();
  EXPECT_THAT(out(), MatchesRegex("revoked operator/alice, serial number [0-9a-f]+\n"));
  EXPECT_THAT(err(), AllOf(HasSubstr("--tls-revoked"), HasSubstr(folder_.Path("ca/revoked"))));
  EXPECT_THAT(files::ReadFile(folder_.Path("ca/revoked")).value(), HasSubstr("operator/alice"));
  EXPECT_EQ(Certs({"revoke", "alice"}), kDone);
  EXPECT_THAT(out(), HasSubstr("already revoked: operator/alice"));
  EXPECT_EQ(Certs({"show"}), kDone);
  EXPECT_THAT(out(),
              AllOf(HasSubstr("operator/alice  REVOKED"), HasSubstr("reader/bob      VALID")));
}

TEST_F(CertsTest, MistakesHaveAnExitCodeAndSayWhatToDo) {
  EXPECT_EQ(Certs({"issue", "reader", "bob"}), kOtherError);
  EXPECT_THAT(err(), HasSubstr("muster certs init"));
  MustInit();
  EXPECT_EQ(Certs({"init"}), kOtherError);
  EXPECT_THAT(err(), HasSubstr("--overwrite"));
  EXPECT_EQ(Certs({"issue", "admin", "bob"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("'admin' is not a role"));
  EXPECT_EQ(Certs({"issue", "coordinator", "main"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("--host HOST"));
  MustIssue("reader", "bob");
  EXPECT_EQ(Certs({"issue", "reader", "bob", "--out", folder_.Path("out")}), kOtherError);
  EXPECT_THAT(err(), HasSubstr("bob.crt exists; --overwrite"));
  EXPECT_EQ(Certs({"issue", "reader", "bob", "--out", folder_.Path("out"), "--overwrite"}), kDone);
  EXPECT_EQ(Certs({"revoke", "carol"}), kOtherError);
  EXPECT_THAT(err(), HasSubstr("muster certs show"));
  EXPECT_EQ(Certs({"show", folder_.Path("job.yaml")}), kUsage);
  EXPECT_THAT(err(), HasSubstr("job.yaml: no certificate in it"));
  EXPECT_EQ(Muster({"certs"}), kUsage);
}

}  // namespace
}  // namespace muster::cli
