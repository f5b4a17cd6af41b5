#include "common/rpc/rpc.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/temp_dir.h"
#include "common/process/fd.h"
#include "common/rpc/address.h"
#include "common/rpc/test_authority.h"
#include "common/steady/test_bound.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster {
namespace {

// A service that answers every call with UNIMPLEMENTED.
v1::JobService::CallbackService service;

grpc::StatusCode CallAt(const std::string& address) {
  const auto stub = v1::JobService::NewStub(OpenChannel(address));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::Job job;
  return stub->GetJob(&context, v1::GetJobRequest(), &job).error_code();
}

TEST(Server, TakesAFreePortAndIsReachedThere) {
  auto server = Server::Start(ServerOptions::InsecureLoopback(), {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->addresses()[0].port, 0);
  EXPECT_EQ(CallAt((*server)->address()), grpc::StatusCode::UNIMPLEMENTED);
}

TEST(Server, IsReachedOverAUnixSocketThatOnlyItsUserCanOpen) {
  const files::TempDir folder = files::TempDir::Short();
  const std::string path = folder.Path("socket");
  const mode_t before = umask(0);
  auto server = Server::Start({.listen = {absl::StrCat("unix:", path)}}, {&service});
  umask(before);
  ASSERT_TRUE(server.ok()) << server.status();
  struct stat found;
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(CallAt((*server)->address()), grpc::StatusCode::UNIMPLEMENTED);
  server->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Server, AnotherUserIsRefusedAlsoIfTheSocketIsOpenToAll) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const files::TempDir folder = files::TempDir::Short();
  const std::string path = folder.Path("socket");
  auto server = Server::Start({.listen = {absl::StrCat("unix:", path)}}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  const pid_t child = fork();
  if (child == 0) {
    // Only calls that are safe after a fork are allowed here.
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    char byte;
    if (setuid(65534) != 0) _exit(2);
    if (connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) _exit(3);
    send(fd, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, MSG_NOSIGNAL);
    _exit(recv(fd, &byte, 1, 0) <= 0 ? 0 : 4);  // closed without a byte
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Waits until the server has closed the connection, with `said` or with nothing sent.
void ExpectClosed(const Address& address, const std::string& said) {
  const process::Fd client(
      socket(address.local() ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un path{.sun_family = AF_UNIX, .sun_path = {}};
  address.path.copy(path.sun_path, sizeof(path.sun_path) - 1);
  const sockaddr_in port{.sin_family = AF_INET,
                         .sin_port = htons(static_cast<uint16_t>(address.port)),
                         .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                         .sin_zero = {}};
  ASSERT_EQ(address.local()
                ? connect(client.get(), reinterpret_cast<const sockaddr*>(&path), sizeof(path))
                : connect(client.get(), reinterpret_cast<const sockaddr*>(&port), sizeof(port)),
            0);
  // The server may have closed the connection already.
  (void)!send(client.get(), said.data(), said.size(), MSG_NOSIGNAL);
  const timeval bound{.tv_sec = absl::ToInt64Seconds(kTestBound), .tv_usec = 0};
  setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  std::array<char, 100> answer;
  ssize_t bytes = 0;
  // gRPC sends its settings first.
  while ((bytes = recv(client.get(), answer.data(), answer.size(), 0)) > 0) continue;
  EXPECT_TRUE(bytes == 0 || errno == ECONNRESET) << strerror(errno);
}

// The first byte of HTTP/2, and of TLS. gRPC closes the connection at the end of its time for the
// handshake.
TEST(Server, AConnectionThatDoesNotCompleteItsHandshakeIsClosed) {
  const files::TempDir folder = files::TempDir::Short();
  TestAuthority authority;
  std::vector<ServerOptions> servers = {{.listen = {absl::StrCat("unix:", folder.Path("socket"))}},
                                        ServerOptions::InsecureLoopback(),
                                        {.listen = {"127.0.0.1:0"}}};
  servers[2].tls = authority.Issue(certs::Role::kCoordinator, "main");
  for (ServerOptions& options : servers) {
    options.limits.handshake = absl::Milliseconds(20);
    auto server = Server::Start(options, {&service});
    ASSERT_TRUE(server.ok()) << server.status();
    for (const std::string said : {"", "P", "\x16"}) {
      SCOPED_TRACE(absl::StrCat((*server)->address(), " '", absl::CHexEscape(said), "'"));
      ExpectClosed((*server)->addresses()[0], said);
    }
  }
}

// A connection without a handshake could otherwise pass its trial, and would never be closed.
TEST(Server, ATrialThatIsNotLongerThanTheHandshakeIsRefused) {
  ServerOptions options = ServerOptions::InsecureLoopback();
  options.limits.trial = options.limits.handshake;
  const absl::Status refused = Server::Start(options, {&service}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(refused.message(), "trial")) << refused;
}

TEST(Server, ASocketOfAKilledProcessIsReplacedAndOneInUseIsNot) {
  const files::TempDir folder = files::TempDir::Short();
  const ServerOptions options{.listen = {absl::StrCat("unix:", folder.Path("socket"))}};
  const pid_t child = fork();
  if (child == 0) {
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    folder.Path("socket").copy(name.sun_path, sizeof(name.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    _exit(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0 && listen(fd, 1) == 0
              ? 0
              : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  auto server = Server::Start(options, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Server::Start(options, {&service}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CallAt((*server)->address()), grpc::StatusCode::UNIMPLEMENTED);
  server->reset();
  std::ofstream(folder.Path("socket")) << "somebody's notes";
  EXPECT_EQ(Server::Start(options, {&service}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::exists(folder.Path("socket")));
}

TEST(KeepAlive, NoticesADeadPeerWithinTheLease) {
  for (const double seconds : {2.0, 3.0, 10.0, 60.0}) {
    const KeepAlive keepalive = KeepAlive::Within(absl::Seconds(seconds));
    EXPECT_LT(keepalive.time + keepalive.timeout, absl::Seconds(0.8 * seconds)) << seconds;
    EXPECT_GE(keepalive.timeout, absl::Seconds(1));
  }
  EXPECT_EQ(KeepAlive::Within(absl::Hours(1)).time, KeepAlive().time);
}

// The environment of an operator names the files with which `muster` connects elsewhere.
TEST(Server, WithoutAPortTheTlsFilesAreNotLookedAt) {
  const files::TempDir folder = files::TempDir::Short();
  ServerOptions options{.listen = {absl::StrCat("unix:", folder.Path("socket"))}};
  options.tls = {.certificate = folder.Path("alice.crt"),
                 .key = folder.Path("alice.key"),
                 .ca = folder.Path("ca.crt")};
  EXPECT_TRUE(Server::Start(options, {&service}).ok());
  options.listen.push_back("127.0.0.1:0");
  const absl::Status status = Server::Start(options, {&service}).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "alice.crt")) << status;
}

TEST(Server, APortIsRefusedUnlessInsecureIsAllowed) {
  for (const std::string address : {"127.0.0.1:0", "0.0.0.0:0"}) {
    const absl::Status refused = Server::Start({.listen = {address}}, {&service}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(refused.message(), "--insecure")) << refused;
    EXPECT_TRUE(Server::Start({.listen = {address}, .insecure = true}, {&service}).ok());
  }
}

TEST(Server, ATakenPortAndAnAddressWithoutPortAreErrors) {
  auto first = Server::Start(ServerOptions::InsecureLoopback(), {&service});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto code = [](const std::string& address) {
    return Server::Start({.listen = {address}, .insecure = true}, {&service}).status().code();
  };
  EXPECT_EQ(code((*first)->address()), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("localhost"), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
