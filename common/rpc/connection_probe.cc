#include "common/rpc/connection_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/address.h"
#include "common/steady/now.h"

namespace muster {
namespace {

bool IsRefused(const sockaddr* name, socklen_t bytes, absl::Time deadline) {
  const int fd = socket(name->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  int error = connect(fd, name, bytes) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd entry = {.fd = fd, .events = POLLOUT, .revents = 0};
    const int64_t left = std::max<int64_t>(1, absl::ToInt64Milliseconds(deadline - SteadyNow()));
    socklen_t size = sizeof(error);
    if (poll(&entry, 1, static_cast<int>(left)) != 1 ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = ETIMEDOUT;
    }
  }
  close(fd);
  // ENOENT: there is no such Unix socket.
  return error == ECONNREFUSED || error == ENOENT;
}

}  // namespace

bool IsRefused(const std::string& address, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  const auto asked = ParseAddress(address);
  if (!asked.ok()) return false;
  if (asked->local()) {
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    asked->path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    return IsRefused(reinterpret_cast<sockaddr*>(&name), sizeof(name), deadline);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(asked->host.c_str(), absl::StrCat(asked->port).c_str(), &hints, &found) != 0) {
    return false;
  }
  bool refused = found != nullptr;
  for (const addrinfo* where = found; where != nullptr && refused; where = where->ai_next) {
    refused = IsRefused(where->ai_addr, where->ai_addrlen, deadline);
  }
  freeaddrinfo(found);
  return refused;
}

ConnectionProbe::ConnectionProbe(std::string address, std::function<void(absl::Time)> on_refused)
    : address_(std::move(address)),
      on_refused_(std::move(on_refused)),
      thread_([this] { Run(); }) {}

ConnectionProbe::~ConnectionProbe() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  changed_.Changed();
  thread_.join();
}

void ConnectionProbe::Begin(absl::Duration interval) {
  {
    absl::MutexLock lock(&mutex_);
    interval_ = interval;
  }
  changed_.Changed();
}

void ConnectionProbe::Stop() { Begin(absl::ZeroDuration()); }

void ConnectionProbe::Run() {
  while (true) {
    absl::Duration interval;
    {
      absl::MutexLock lock(&mutex_);
      changed_.Await(mutex_, absl::InfiniteDuration(),
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                       return closing_ || interval_ > absl::ZeroDuration();
                     });
      if (closing_) return;
      interval = interval_;
    }
    const absl::Time begun = SteadyNow();
    // No process listened at the time `begun`. One may listen now.
    if (IsRefused(address_, interval) && !IsClosing()) on_refused_(begun);
    absl::MutexLock lock(&mutex_);
    changed_.Await(mutex_, interval, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closing_ || interval_ == absl::ZeroDuration();
    });
  }
}

bool ConnectionProbe::IsClosing() {
  absl::MutexLock lock(&mutex_);
  return closing_;
}

}  // namespace muster
