#include "coordinator/webhook/socket_limit.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/steady/now.h"

namespace muster::webhook {
namespace {

// How often the kernel is asked how much a socket has received.
constexpr absl::Duration kLookAgain = absl::Milliseconds(10);

}  // namespace

SocketLimit::SocketLimit() : thread_([this] { Loop(); }) {}

SocketLimit::~SocketLimit() {
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    changed_.Changed();
  }
  thread_.join();
  End();
}

bool SocketLimit::Begin(absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  if (aborted_) return false;
  state_ = State::kUsed;
  deadline_ = SteadyNow() + limit;
  ++uses_;
  changed_.Changed();
  return true;
}

void SocketLimit::Use(int socket) {
  absl::MutexLock lock(&mutex_);
  if (socket_ >= 0) close(socket_);
  socket_ = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (state_ == State::kOver) ShutDown();
}

bool SocketLimit::End() {
  absl::MutexLock lock(&mutex_);
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  changed_.Changed();
  return std::exchange(state_, State::kIdle) == State::kOver;
}

void SocketLimit::Abort() {
  absl::MutexLock lock(&mutex_);
  aborted_ = true;
  if (state_ == State::kUsed) ShutDown();
}

bool SocketLimit::aborted() const {
  absl::MutexLock lock(&mutex_);
  return aborted_;
}

void SocketLimit::ShutDown() {
  state_ = State::kOver;
  if (socket_ < 0) return;
  // Also while it connects: the kernel then gives up the attempt.
  shutdown(socket_, SHUT_RDWR);
  // What has been received could still be read, and the library takes a minute for some megabytes:
  // a TCP socket that is disconnected (connect(2), AF_UNSPEC) drops it.
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  (void)connect(socket_, &nowhere, sizeof(nowhere));
}

bool SocketLimit::ReceivedTooMuch() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return socket_ >= 0 && getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         info.tcpi_bytes_received > kMostBytes;
}

void SocketLimit::Loop() {
  absl::MutexLock lock(&mutex_);
  while (!ended_) {
    const uint64_t use = uses_;
    const bool used = state_ == State::kUsed;
    const absl::Duration left = deadline_ - SteadyNow();
    if (used && (left <= absl::ZeroDuration() || ReceivedTooMuch())) {
      ShutDown();
      continue;
    }
    changed_.Await(mutex_, used ? std::min(left, kLookAgain) : absl::InfiniteDuration(),
                   [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                     return ended_ || uses_ != use || (state_ == State::kUsed) != used;
                   });
  }
}

}  // namespace muster::webhook
