#include "common/rpc/accept_loop.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster {
namespace {

// The subject of an event: the loop's end, a listener, or a connection.
constexpr uint64_t kWake = 0;
constexpr uint64_t kFirstConnection = uint64_t{1} << 32;
// The number of connections of one listener in a row, so that other listeners get their turn.
constexpr int kInARow = 64;
constexpr absl::Duration kBetweenWarnings = absl::Seconds(10);

bool NoRoom(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AcceptLoop>> AcceptLoop::Start(std::vector<Listener> listeners,
                                                              const ConnectionLimits& limits,
                                                              absl::Duration rest) {
  std::unique_ptr<AcceptLoop> loop(new AcceptLoop(std::move(listeners), limits, rest));
  loop->epoll_ = process::Fd(epoll_create1(EPOLL_CLOEXEC));
  loop->wake_ = process::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (loop->epoll_.get() < 0 || loop->wake_.get() < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot accept connections: ", strerror(errno), " (`ulimit -n`)"));
  }
  loop->Watch(loop->wake_.get(), kWake, EPOLLIN);
  for (size_t i = 0; i < loop->listeners_.size(); ++i) {
    loop->Watch(loop->listeners_[i].fd.get(), i + 1, EPOLLIN);
  }
  loop->thread_ = std::thread([raw = loop.get()] { raw->Loop(); });
  return loop;
}

AcceptLoop::~AcceptLoop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void AcceptLoop::Watch(int fd, uint64_t key, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = key}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void AcceptLoop::WatchFor(int fd, uint64_t key, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = key}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void AcceptLoop::Warn(const std::string& what) {
  const absl::Time now = SteadyNow();
  if (now < last_warning_ + kBetweenWarnings) return;
  last_warning_ = now;
  spdlog::warn("{}; {} connections are in use and {} have not said anything yet", what,
               connections_.spoken(), connections_.silent());
}

int AcceptLoop::Timeout() const {
  absl::Time next = connections_.NextOverdue();
  for (const auto& [listener, until] : resting_) next = std::min(next, until);
  const absl::Duration left =
      std::clamp(next - SteadyNow(), absl::ZeroDuration(), absl::Hours(1));
  return static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
}

void AcceptLoop::Loop() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), Timeout());
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kWake) return;
      if (key < kFirstConnection) {
        AcceptSome(key - 1);
      } else {
        OnEvent(static_cast<Id>(key - kFirstConnection));
      }
    }
    while (const auto id = connections_.Overdue(SteadyNow())) Close(*id);
    EndRests();
  }
}

void AcceptLoop::AcceptSome(size_t listener) {
  const int socket = listeners_[listener].fd.get();
  for (int i = 0; i < kInARow; ++i) {
    // The copy is made first: a connection without a copy would have to be closed.
    process::Fd copy(fcntl(socket, F_DUPFD_CLOEXEC, 0));
    if (copy.get() < 0) return Rest(listener);
    process::Fd fd(accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (NoRoom(errno)) return Rest(listener);
      continue;  // an error of the connection: it was closed before it was accepted
    }
    if (dup3(fd.get(), copy.get(), O_CLOEXEC) < 0) continue;
    SocketPeer peer = PeerOf(fd.get());
    if (!listeners_[listener].admits(peer)) {
      Warn(absl::StrCat("a connection of ", peer.name, " was refused"));
      continue;
    }
    Take({.copy = std::move(copy),
          .fd = std::move(fd),
          .listener = listener,
          .peer = std::move(peer)});
  }
}

void AcceptLoop::Rest(size_t listener) {
  Warn("there is no file descriptor for another connection (`ulimit -n`)");
  // Ignores the listener's events: the listener stays readable, so the events would come again at
  // once.
  WatchFor(listeners_[listener].fd.get(), listener + 1, 0);
  resting_[listener] = SteadyNow() + rest_;
}

void AcceptLoop::EndRests() {
  const absl::Time now = SteadyNow();
  std::erase_if(resting_, [this, now](const auto& one) {
    const auto& [listener, until] = one;
    if (until > now) return false;
    WatchFor(listeners_[listener].fd.get(), listener + 1, EPOLLIN);
    return true;
  });
}

void AcceptLoop::Take(Connection connection) {
  const Id id = ++last_id_;
  const Transport transport = connection.peer.local ? Transport::kLocal : Transport::kTcp;
  const auto closed = connections_.Arrived(id, transport, connection.peer.name, SteadyNow());
  Watch(connection.copy.get(), kFirstConnection + static_cast<uint64_t>(id), EPOLLIN | EPOLLRDHUP);
  open_.emplace(id, std::move(connection));
  if (closed.has_value()) Close(*closed);
}

void AcceptLoop::OnEvent(Id id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  if (found->second.fd.get() >= 0) {
    char first = 0;
    const ssize_t bytes = recv(found->second.fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (bytes > 0) return HandOver(id);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  }
  Close(id);
  connections_.Ended(id);
}

void AcceptLoop::HandOver(Id id) {
  Connection& connection = open_.at(id);
  if (const auto closed = connections_.Spoke(id, SteadyNow())) {
    Warn(absl::StrCat("there are too many connections; one was closed when one of ",
                      connection.peer.name, " came"));
    Close(*closed);
    if (*closed == id) return;
  }
  // Waits only for the end of both directions, which epoll always reports.
  WatchFor(connection.copy.get(), kFirstConnection + static_cast<uint64_t>(id), 0);
  if (!connection.peer.local) {
    const int on = 1;
    setsockopt(connection.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  listeners_[connection.listener].take(std::move(connection.fd), connection.peer);
}

void AcceptLoop::Close(Id id) {
  const auto found = open_.find(id);
  const int copy = found->second.copy.get();
  // The new owner's descriptor may keep the socket open. So the events must be removed, and only
  // the shutdown tells the peer of the end.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, copy, nullptr);
  shutdown(copy, SHUT_RDWR);
  open_.erase(found);
}

}  // namespace muster
