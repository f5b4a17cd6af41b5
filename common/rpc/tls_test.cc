// Connections: their conditions, and the replacement of files. every_method_test.cc tests what a
// caller may do.
#include "common/rpc/tls.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/certs/certificate.h"
#include "common/certs/signing.h"
#include "common/rpc/test_authority.h"
#include "common/rpc/test_server.h"
#include "common/steady/now.h"
#include "common/steady/test_bound.h"

namespace muster {
namespace {

using certs::Role;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kGet[] = "/muster.v1.JobService/GetJob";

absl::Status AllowAll(const Caller&, const std::string&) { return absl::OkStatus(); }

std::string SerialOf(const std::string& certificate_file) {
  return certs::ParseCertificate(files::ReadFile(certificate_file).value()).value().serial;
}

class TlsTest : public testing::Test {
 protected:
  std::unique_ptr<TestServer> Serve(const certs::TlsFiles& files) {
    return TestServer::AtPort(ServerTls(files, AllowAll).value());
  }
  // Checks that the call fails with `why` in its error, and reaches no service.
  void ExpectRefused(TestServer* server, std::shared_ptr<grpc::ChannelCredentials> credentials,
                     const std::string& why) {
    const grpc::Status status = Call(NewChannel(server->address(), credentials), kGet);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(why));
    EXPECT_THAT(server->TakeSeen(), IsEmpty());
  }
  // Makes calls over new connections until one is as expected. A replaced file is noticed within a
  // second or two.
  void Await(const std::function<bool()>& try_once, const std::string& what) {
    const absl::Time end = SteadyNow() + kTestBound;
    while (!try_once()) ASSERT_LT(SteadyNow(), end) << what;
  }

  TestAuthority authority_;
  TestAuthority other_authority_;
  const certs::TlsFiles coordinator_ = authority_.Issue(Role::kCoordinator, "main");
  const certs::TlsFiles alice_ = authority_.Issue(Role::kOperator, "alice");
};

TEST_F(TlsTest, BothSidesKnowEachOther) {
  const auto server = Serve(coordinator_);
  const auto channel = NewChannel(server->address(), ClientTls(alice_).value());
  std::string pem;
  const grpc::Status status = Call(channel, kGet, &pem);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(certs::ParseCertificate(pem).value().common_name, "coordinator/main");
  const std::vector<SeenCall> seen = server->TakeSeen();
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(ToString(seen[0].caller), "operator/alice");
  EXPECT_EQ(seen[0].caller.serial, SerialOf(alice_.certificate));
  EXPECT_EQ(seen[0].caller.peer, "127.0.0.1");
}

TEST_F(TlsTest, BadFilesAreErrorsAtTheStart) {
  EXPECT_EQ(ServerTls({}, AllowAll).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ServerTls(alice_, AllowAll).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ClientTls(coordinator_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ClientTls(authority_.IssueExpired(Role::kAgent, "n")).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TlsTest, AServerOfAnotherAuthorityIsRefused) {
  const auto server = Serve(other_authority_.Issue(Role::kCoordinator, "main"));
  ExpectRefused(server.get(), ClientTls(alice_).value(), "certificate verify failed");
}

TEST_F(TlsTest, AServerWithTheCertificateOfAnAgentIsRefused) {
  // A certificate that a server could use: `muster certs` makes no such certificate, but another CA
  // may.
  const certs::Identity ca{
      std::move(certs::ReadCertificates(files::ReadFile(authority_.ca()).value()).value()[0]),
      certs::ReadKey(files::ReadFile(authority_.folder() + "/ca.key").value()).value()};
  const certs::Identity agent = certs::Sign({.common_name = "agent/node1",
                                             .use = certs::Use::kServer,
                                             .hosts = {"127.0.0.1"},
                                             .from = absl::Now() - absl::Hours(1),
                                             .until = absl::Now() + absl::Hours(1)},
                                            &ca)
                                    .value();
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({certs::Pem(*agent.key), certs::Pem(*agent.certificate)});
  const auto server = TestServer::AtPort(grpc::SslServerCredentials(options));
  // The other conditions are met: a client that requires no role gets through.
  EXPECT_TRUE(Call(NewChannel(server->address(), UncheckedTls({}, authority_.ca())), kGet).ok());
  EXPECT_THAT(server->TakeSeen(), SizeIs(1));
  ExpectRefused(server.get(), ClientTls(alice_).value(),
                "has the certificate of 'agent/node1', which is not a coordinator's");
}

TEST_F(TlsTest, ACoordinatorsCertificateForAnotherHostIsRefused) {
  const auto issued = certs::Issue({.authority = authority_.folder(),
                                    .subject = {Role::kCoordinator, "elsewhere"},
                                    .hosts = {"gpu1.example.com", "10.0.0.7"},
                                    .days = 1,
                                    .out = authority_.folder() + "-elsewhere",
                                    .now = absl::Now()});
  ASSERT_TRUE(issued.ok()) << issued.status();
  const auto server = Serve(issued->files);
  ExpectRefused(server.get(), ClientTls(alice_).value(),
                "coordinator/elsewhere is not for 127.0.0.1 but for gpu1.example.com, 10.0.0.7");
}

TEST_F(TlsTest, ARenewedCertificateOfTheServerIsUsedWithoutARestart) {
  const auto server = Serve(coordinator_);
  const auto credentials = ClientTls(alice_).value();
  const auto old_channel = NewChannel(server->address(), credentials);
  ASSERT_TRUE(Call(old_channel, kGet).ok());
  const std::string old_serial = SerialOf(coordinator_.certificate);
  authority_.Issue(Role::kCoordinator, "main");
  const std::string new_serial = SerialOf(coordinator_.certificate);
  ASSERT_NE(new_serial, old_serial);
  Await(
      [&] {
        std::string pem;
        Call(NewChannel(server->address(), credentials), kGet, &pem);
        return certs::ParseCertificate(pem).value_or(certs::Certificate()).serial == new_serial;
      },
      "the server still shows its old certificate");
  // A connection from before continues.
  EXPECT_TRUE(Call(old_channel, kGet).ok());
}

TEST_F(TlsTest, ARenewedCertificateOfAClientIsUsedWithoutARestart) {
  const auto server = Serve(coordinator_);
  const auto credentials = ClientTls(alice_).value();
  ASSERT_TRUE(Call(NewChannel(server->address(), credentials), kGet).ok());
  authority_.Issue(Role::kOperator, "alice");
  const std::string new_serial = SerialOf(alice_.certificate);
  server->TakeSeen();
  Await(
      [&] {
        Call(NewChannel(server->address(), credentials), kGet);
        const std::vector<SeenCall> seen = server->TakeSeen();
        return !seen.empty() && seen.back().caller.serial == new_serial;
      },
      "the client still shows its old certificate");
}

// A renewal writes two files in sequence.
TEST_F(TlsTest, AKeyThatDoesNotFitTheCertificateStopsNewConnectionsUntilTheOtherFileFollows) {
  const auto server = Serve(coordinator_);
  const auto credentials = ClientTls(alice_).value();
  const auto old_channel = NewChannel(server->address(), credentials);
  ASSERT_TRUE(Call(old_channel, kGet).ok());
  const auto connects = [&] { return Call(NewChannel(server->address(), credentials), kGet).ok(); };
  const certs::TlsFiles next = authority_.Issue(Role::kCoordinator, "next");
  ASSERT_TRUE(files::WriteAtomically(coordinator_.key, files::ReadFile(next.key).value()).ok());
  Await([&] { return !connects(); }, "the server does not see the new key");
  EXPECT_TRUE(Call(old_channel, kGet).ok());
  ASSERT_TRUE(
      files::WriteAtomically(coordinator_.certificate, files::ReadFile(next.certificate).value())
          .ok());
  Await(connects, "the server does not see the certificate that fits");
}

// A change of the CA begins with trust in both CAs.
TEST_F(TlsTest, AnAuthorityThatIsAddedToTheFileIsTrustedWithoutARestart) {
  const auto server = Serve(coordinator_);
  const certs::TlsFiles bob = other_authority_.Issue(Role::kOperator, "bob");
  const auto credentials = UncheckedTls(bob, authority_.ca());
  EXPECT_FALSE(Call(NewChannel(server->address(), credentials), kGet).ok());
  EXPECT_THAT(server->TakeSeen(), IsEmpty());
  ASSERT_TRUE(
      files::WriteAtomically(coordinator_.ca, files::ReadFile(authority_.ca()).value() +
                                                  files::ReadFile(other_authority_.ca()).value())
          .ok());
  Await([&] { return Call(NewChannel(server->address(), credentials), kGet).ok(); },
        "the server does not trust the second CA");
}

// Tries a handshake with at most this version of TLS, as a client that accepts weak versions.
bool Handshakes(int port, int newest_version) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_security_level(context, 0);
  SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context, newest_version);
  const unsigned char http2[] = "\x02h2";
  SSL_CTX_set_alpn_protos(context, http2, 3);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  SSL* connection = SSL_new(context);
  SSL_set_fd(connection, fd);
  bool greeted = false;
  // The server sends hello with its certificate, then refuses this client, which has no
  // certificate.
  SSL_set_msg_callback(
      connection, +[](int written, int /*version*/, int type, const void* bytes, size_t size, SSL*,
                      void* flag) {
        if (written == 0 && type == SSL3_RT_HANDSHAKE && size > 0 &&
            *static_cast<const unsigned char*>(bytes) == SSL3_MT_SERVER_HELLO) {
          *static_cast<bool*>(flag) = true;
        }
      });
  SSL_set_msg_callback_arg(connection, &greeted);
  SSL_connect(connection);
  SSL_free(connection);
  SSL_CTX_free(context);
  close(fd);
  return greeted;
}

TEST_F(TlsTest, OlderVersionsThanTls12AreRefused) {
  const auto server = Serve(coordinator_);
  EXPECT_TRUE(Handshakes(server->port(), TLS1_3_VERSION));
  EXPECT_TRUE(Handshakes(server->port(), TLS1_2_VERSION));
  EXPECT_FALSE(Handshakes(server->port(), TLS1_1_VERSION));
  EXPECT_THAT(server->TakeSeen(), IsEmpty());
}

}  // namespace
}  // namespace muster
