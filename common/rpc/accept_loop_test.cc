#include "common/rpc/accept_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files/temp_dir.h"
#include "common/process/fd.h"
#include "common/rpc/address.h"
#include "common/rpc/connections.h"
#include "common/rpc/sockets.h"
#include "common/steady/test_bound.h"

namespace muster {
namespace {

class AcceptLoopTest : public ::testing::Test {
 protected:
  void Start(const ConnectionLimits& limits, bool admits = true,
             absl::Duration rest = absl::Milliseconds(100)) {
    auto socket = Listen({.path = folder_.Path("socket")});
    ASSERT_TRUE(socket.ok()) << socket.status();
    std::vector<AcceptLoop::Listener> listeners;
    listeners.push_back({.fd = std::move(socket->fd),
                         .admits =
                             [admits](const SocketPeer& peer) {
                               return admits && peer.local && peer.uid == geteuid();
                             },
                         .take =
                             [this](process::Fd fd, const SocketPeer&) {
                               absl::MutexLock lock(&mutex_);
                               taken_.push_back(std::move(fd));
                             }});
    auto loop = AcceptLoop::Start(std::move(listeners), limits, rest);
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
  }

  static process::Fd Unconnected() {
    process::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval bound{.tv_sec = absl::ToInt64Seconds(kTestBound), .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
    return fd;
  }

  void Connect(const process::Fd& fd) {
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    folder_.Path("socket").copy(name.sun_path, sizeof(name.sun_path) - 1);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  }

  process::Fd Connect() {
    process::Fd fd = Unconnected();
    Connect(fd);
    return fd;
  }

  void Speak(const process::Fd& fd) {
    Connect(fd);
    // The server may have closed the connection already.
    (void)!send(fd.get(), "x", 1, MSG_NOSIGNAL);
  }

  process::Fd Speak() {
    process::Fd fd = Unconnected();
    Speak(fd);
    return fd;
  }

  // Waits until the loop has closed the connection.
  static bool IsClosed(const process::Fd& fd) {
    char byte;
    const ssize_t bytes = recv(fd.get(), &byte, 1, 0);
    return bytes == 0 || (bytes < 0 && errno == ECONNRESET);
  }

  // Waits for the next connection that is handed over.
  process::Fd Taken() {
    absl::MutexLock lock(&mutex_);
    const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !taken_.empty(); };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&any), kTestBound));
    if (taken_.empty()) return process::Fd();
    process::Fd fd = std::move(taken_.front());
    taken_.pop_front();
    return fd;
  }

  const files::TempDir folder_ = files::TempDir::Short();
  absl::Mutex mutex_;
  std::deque<process::Fd> taken_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<AcceptLoop> loop_;
};

TEST_F(AcceptLoopTest, AConnectionIsHandedOverUnreadWhenItsFirstByteComes) {
  Start({});
  const process::Fd client = Speak();
  const process::Fd taken = Taken();
  char byte = 0;
  ASSERT_EQ(recv(taken.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
}

TEST_F(AcceptLoopTest, AFloodOfSilentOnesDoesNotKeepOutOneThatSpeaks) {
  Start({.silent = 2});
  std::vector<process::Fd> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(Connect());
  const process::Fd client = Speak();
  EXPECT_GE(Taken().get(), 0);
  EXPECT_TRUE(IsClosed(silent[0]));
  EXPECT_TRUE(IsClosed(silent[47]));
}

TEST_F(AcceptLoopTest, OneThatSaysNothingIsClosed) {
  Start({.handshake = absl::Milliseconds(20)});
  EXPECT_TRUE(IsClosed(Connect()));
}

TEST_F(AcceptLoopTest, OneThatIsNotAdmittedIsClosedAndNeverHandedOver) {
  Start({}, /*admits=*/false);
  EXPECT_TRUE(IsClosed(Connect()));
  loop_.reset();
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(taken_.empty());
}

TEST_F(AcceptLoopTest, OneMoreThanAllowedTakesThePlaceOfOneThatWasHandedOver) {
  Start({.local = 2});
  std::vector<process::Fd> clients;
  std::vector<process::Fd> taken;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Speak());
    taken.push_back(Taken());
    EXPECT_GE(taken.back().get(), 0);
  }
  // The test, in the place of gRPC, still has the descriptor.
  EXPECT_TRUE(IsClosed(clients[0]));
  char byte = 0;
  EXPECT_EQ(recv(taken[1].get(), &byte, 1, MSG_DONTWAIT), 1);
  EXPECT_LT(recv(taken[1].get(), &byte, 1, MSG_DONTWAIT), 0) << "it was closed, too";
}

TEST_F(AcceptLoopTest, WhatHasEndedMakesRoom) {
  Start({.trial = absl::ZeroDuration(), .local = 1});
  process::Fd client = Speak();
  process::Fd taken = Taken();
  // The connection before has passed its trial.
  EXPECT_TRUE(IsClosed(Speak()));
  // Ends a connection as gRPC does.
  shutdown(taken.get(), SHUT_RDWR);
  taken = process::Fd();
  EXPECT_TRUE(IsClosed(client));
  // The loop closes the next connection, too, if it has not seen the end yet.
  for (bool heard = false; !heard;) {
    client = Speak();
    absl::MutexLock lock(&mutex_);
    const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !taken_.empty(); };
    heard = mutex_.AwaitWithTimeout(absl::Condition(&any), absl::Milliseconds(50));
  }
}

// Takes all descriptors up to the highest one in use, except `free` of them, and allows no others.
class FewDescriptors {
 public:
  explicit FewDescriptors(size_t free) {
    getrlimit(RLIMIT_NOFILE, &before_);
    int highest = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      highest = std::max(highest, std::stoi(entry.path().filename().string()));
    }
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(highest) + 1 + free;
    setrlimit(RLIMIT_NOFILE, &few);
    while (true) {
      process::Fd filler(dup(0));
      if (filler.get() < 0) break;
      fillers_.push_back(std::move(filler));
    }
    for (size_t i = 0; i < free; ++i) fillers_.pop_back();
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

  // The number of free descriptors.
  static size_t Free() {
    rlimit few{};
    getrlimit(RLIMIT_NOFILE, &few);
    size_t free = 0;
    for (rlim_t fd = 0; fd < few.rlim_cur; ++fd) {
      if (fcntl(static_cast<int>(fd), F_GETFD) < 0) ++free;
    }
    return free;
  }

 private:
  rlimit before_{};
  std::vector<process::Fd> fillers_;
};

TEST_F(AcceptLoopTest, WithoutAFreeDescriptorConnectionsWaitAndAreHeardLater) {
  Start({});
  std::vector<process::Fd> clients;
  for (int i = 0; i < 10; ++i) clients.push_back(Unconnected());
  {
    const FewDescriptors none(0);
    for (const process::Fd& client : clients) Speak(client);
  }
  for (size_t i = 0; i < clients.size(); ++i) EXPECT_GE(Taken().get(), 0);
}

TEST_F(AcceptLoopTest, WithTooFewDescriptorsNoneIsClosedAndEndsAreSeen) {
  for (const size_t free : {0, 1}) {
    // The listener does not try again during the test.
    Start({}, /*admits=*/true, /*rest=*/absl::Hours(1));
    const process::Fd before = Unconnected();
    Speak(before);
    process::Fd taken = Taken();
    // A connection that was accepted shows that the loop has looked for events since. Otherwise
    // epoll may report the end of the first connection before the clients.
    const process::Fd another = Unconnected();
    Speak(another);
    const process::Fd another_taken = Taken();
    std::vector<process::Fd> clients;
    for (int i = 0; i < 10; ++i) clients.push_back(Unconnected());
    {
      const FewDescriptors few(free);
      for (const process::Fd& client : clients) Speak(client);
      // The loop sees the end after the clients, and closes its copy.
      shutdown(taken.get(), SHUT_RDWR);
      const absl::Time end = absl::Now() + kTestBound;
      while (FewDescriptors::Free() <= free && absl::Now() < end) std::this_thread::yield();
      EXPECT_EQ(FewDescriptors::Free(), free + 1);
    }
    for (const process::Fd& client : clients) {
      char byte = 0;
      EXPECT_LT(recv(client.get(), &byte, 1, MSG_DONTWAIT), 0);
      EXPECT_EQ(errno, EAGAIN) << "it was closed";
    }
    // The destructor does not wait for the listener.
    loop_.reset();
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(taken_.empty());
  }
}

}  // namespace
}  // namespace muster
