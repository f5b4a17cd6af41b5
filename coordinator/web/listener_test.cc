#include "coordinator/web/listener.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/temp_dir.h"
#include "common/process/fd.h"
#include "common/steady/test_bound.h"

namespace muster::web {
namespace {

constexpr char kRequest[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr char kHead[] = "HTTP/1.1 200 OK\r\n\r\n";
constexpr char kResponse[] = "HTTP/1.1 200 OK\r\n\r\nhello";

std::string Whole(const Response& response) { return response.head + *response.body; }

int Connect(const Address& address) {
  if (address.local()) {
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    address.path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    return fd;
  }
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(address.port));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  return fd;
}

bool Readable(int fd) {
  pollfd polled{.fd = fd, .events = POLLIN};
  return poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(kTestBound))) == 1;
}

// A client with its own connection.
class Client {
 public:
  explicit Client(const Address& address) : fd_(Connect(address)) {}

  void Send(const std::string& text) {
    (void)!send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Returns everything that comes until the connection ends.
  std::string Receive() {
    std::string all;
    char bytes[4096];
    while (Readable(fd_.get())) {
      const ssize_t count = recv(fd_.get(), bytes, sizeof(bytes), 0);
      if (count <= 0) return all;
      all.append(bytes, static_cast<size_t>(count));
    }
    ADD_FAILURE() << "the connection was not closed";
    return all;
  }
  std::string Ask(const std::string& request) {
    Send(request);
    return Receive();
  }
  int fd() const { return fd_.get(); }

 private:
  process::Fd fd_;
};

class ListenerTest : public testing::Test {
 protected:
  void Start(HttpLimits limits = {}, Address address = {.host = "127.0.0.1"}) {
    auto listener = Listener::Start({.address = std::move(address),
                                     .limits = limits,
                                     .respond = [this](const std::string& first_line) {
                                       EXPECT_EQ(first_line, "GET / HTTP/1.1");
                                       ++asked_;
                                       return Response{kHead, body_};
                                     }});
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  const Address& address() const { return listener_->address(); }

  std::shared_ptr<const std::string> body_ = std::make_shared<const std::string>("hello");
  std::atomic<int> asked_ = 0;
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerTest, ARequestIsAnsweredAndTheConnectionEnds) {
  Start();
  EXPECT_EQ(Client(address()).Ask(kRequest), kResponse);
  EXPECT_EQ(Client(address()).Ask(kRequest), kResponse);
}

TEST_F(ListenerTest, ARequestMayArriveByteByByte) {
  Start();
  Client client(address());
  for (const char byte : std::string(kRequest)) client.Send(std::string(1, byte));
  EXPECT_EQ(client.Receive(), kResponse);
}

TEST_F(ListenerTest, AUnixSocketIsPrivateAndRemovedAtTheEnd) {
  const files::TempDir folder = files::TempDir::Short();
  const std::string path = folder.path() + "/http";
  Start({}, {.path = path});
  EXPECT_EQ(Client(address()).Ask(kRequest), kResponse);
  struct stat file{};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600);
  listener_.reset();
  EXPECT_NE(stat(path.c_str(), &file), 0);
}

TEST_F(ListenerTest, ARequestIsRefusedWithTheReason) {
  Start();
  EXPECT_EQ(Client(address()).Ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
            Whole(Refusal(403)));
  EXPECT_EQ(Client(address()).Ask(std::string(20000, 'a')), Whole(Refusal(431)));
  EXPECT_EQ(asked_, 0);
}

TEST_F(ListenerTest, LinesOfAnyLengthDisturbNobody) {
  Start();
  for (const size_t size : {size_t{100'000}, size_t{2} << 20}) {
    const std::string any(size, 'a');
    for (const std::string& request :
         {"GET /" + any + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
          "GET / HTTP/1.1\r\nHost: localhost\r\nRange: bytes=" + any + "\r\n\r\n"}) {
      // The answer may be lost, because the connection is closed while the peer still sends.
      Client(address()).Ask(request);
      EXPECT_EQ(Client(address()).Ask(kRequest), kResponse);
    }
  }
}

TEST_F(ListenerTest, PeersThatSendNothingOrOnlyAPartKeepNobodyOut) {
  const HttpLimits limits{.requests = 8, .request_seconds = 3600};
  Start(limits);
  std::vector<std::unique_ptr<Client>> slow;
  for (size_t i = 0; i < 20 * limits.requests; ++i) {
    slow.push_back(std::make_unique<Client>(address()));
    if (i % 2 == 0) slow.back()->Send("GET / HTTP/1.1\r\nHost: local");
    if (i % 10 == 0) {
      EXPECT_EQ(Client(address()).Ask(kRequest), kResponse);
    }
  }
  EXPECT_EQ(Client(address()).Ask(kRequest), kResponse);
  // The number of incomplete requests is limited: all connections except the last ones were closed.
  for (size_t i = 0; i + 2 * limits.requests < slow.size(); ++i) EXPECT_EQ(slow[i]->Receive(), "");
}

TEST_F(ListenerTest, APeerThatSendsTooSlowlyIsClosedEvenIfItGoesOn) {
  Start({.request_seconds = 1});
  Client silent(address());
  Client slow(address());
  slow.Send("GET / HTTP/1.1\r\n");
  EXPECT_EQ(silent.Receive(), "");
  EXPECT_EQ(slow.Receive(), "");
  EXPECT_EQ(asked_, 0);
}

TEST_F(ListenerTest, PeersThatDoNotReadKeepNobodyOut) {
  // The body is far larger than what the kernel takes for a connection.
  body_ = std::make_shared<const std::string>(64 << 20, 'a');
  const HttpLimits limits{.responses = 3, .response_seconds = 3600};
  Start(limits);
  std::vector<std::unique_ptr<Client>> slow;
  for (size_t i = 0; i < 4 * limits.responses; ++i) {
    slow.push_back(std::make_unique<Client>(address()));
    slow.back()->Send(kRequest);
    ASSERT_TRUE(Readable(slow.back()->fd()));
  }
  EXPECT_EQ(Client(address()).Ask(kRequest), kHead + *body_);
  EXPECT_LT(slow.front()->Receive().size(), body_->size());
}

TEST_F(ListenerTest, AResponseThatIsNotReadInTimeIsGivenUp) {
  body_ = std::make_shared<const std::string>(64 << 20, 'a');
  Start({.response_seconds = 1});
  Client slow(address());
  slow.Send(kRequest);
  ASSERT_TRUE(Readable(slow.fd()));
  // The end of a connection is visible even if nothing is read.
  pollfd polled{.fd = slow.fd(), .events = POLLRDHUP};
  ASSERT_EQ(poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(kTestBound))), 1);
  EXPECT_LT(slow.Receive().size(), body_->size());
}

TEST_F(ListenerTest, APortThatIsInUseIsNamed) {
  Start();
  const auto second = Listener::Start({.address = address()});
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_NE(second.status().message().find(absl::StrCat("127.0.0.1:", address().port)),
            absl::string_view::npos)
      << second.status();
}

TEST_F(ListenerTest, ItEndsWhileConnectionsAreOpen) {
  Start();
  Client silent(address());
  Client slow(address());
  slow.Send("GET / HTTP/1.1\r\n");
  listener_.reset();
  EXPECT_EQ(silent.Receive(), "");
  EXPECT_EQ(slow.Receive(), "");
}

}  // namespace
}  // namespace muster::web
