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

// What an event is about: the loop's end, a listener, or a connection.
constexpr uint64_t kWake = 0;
constexpr uint64_t kFirstConnection = uint64_t{1} << 32;
// Connections of one listener in a row, so that the others have their turn.
constexpr int kInARow = 64;
constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr absl::Duration kBetweenWarnings = absl::Seconds(10);

process::Fd OpenReserve() { return process::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool NoRoom(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AcceptLoop>> AcceptLoop::Start(std::vector<Listener> listeners,
                                                              const ConnectionLimits& limits) {
  std::unique_ptr<AcceptLoop> loop(new AcceptLoop(std::move(listeners), limits));
  loop->epoll_ = process::Fd(epoll_create1(EPOLL_CLOEXEC));
  loop->wake_ = process::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  loop->reserve_ = OpenReserve();
  if (loop->epoll_.get() < 0 || loop->wake_.get() < 0 || loop->reserve_.get() < 0) {
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

void AcceptLoop::Warn(const std::string& what) {
  const absl::Time now = SteadyNow();
  if (now < last_warning_ + kBetweenWarnings) return;
  last_warning_ = now;
  spdlog::warn("{}; {} connections are in use and {} have not said anything yet", what,
               connections_.spoken(), connections_.silent());
}

void AcceptLoop::Loop() {
  std::array<epoll_event, 64> events;
  while (true) {
    const absl::Duration left =
        std::clamp(connections_.NextOverdue() - SteadyNow(), absl::ZeroDuration(), absl::Hours(1));
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(),
                                 static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kWake) return;
      if (key < kFirstConnection) {
        AcceptSome(key - 1);
        continue;
      }
      // One that an event before this closed is in neither list.
      const auto id = static_cast<Id>(key - kFirstConnection);
      if (silent_.contains(id)) {
        OnSilent(id);
      } else if (handed_over_.contains(id)) {
        OnEnd(id);
      }
    }
    while (const auto id = connections_.Overdue(SteadyNow())) CloseSilent(*id);
  }
}

void AcceptLoop::AcceptSome(size_t listener) {
  for (int i = 0; i < kInARow; ++i) {
    const int socket = listeners_[listener].fd.get();
    process::Fd fd(accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() >= 0) {
      Take(std::move(fd), listener);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    // Others are errors of the connection: it was closed before it was accepted.
    if (NoRoom(errno) && !Relieve(socket)) return;
  }
}

bool AcceptLoop::Relieve(int listener) {
  Warn("there is no file descriptor for another connection (`ulimit -n`)");
  if (const auto id = connections_.Shed()) {
    CloseSilent(*id);
    return true;
  }
  // The one that waits is closed: its client tries again, and others are heard.
  if (reserve_.get() >= 0) {
    reserve_ = process::Fd();
    const process::Fd refused(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    const bool accepted = refused.get() >= 0;
    if (accepted) shutdown(refused.get(), SHUT_RDWR);
    if (accepted) return true;
  } else {
    reserve_ = OpenReserve();
  }
  // Some other thread has what was freed. The listener stays readable, so this comes again at once.
  absl::SleepFor(kPause);
  return false;
}

void AcceptLoop::Take(process::Fd fd, size_t listener) {
  if (reserve_.get() < 0) reserve_ = OpenReserve();
  SocketPeer peer = PeerOf(fd.get());
  if (!listeners_[listener].admits(peer)) {
    Warn(absl::StrCat("a connection of ", peer.name, " was refused"));
    return;
  }
  const Id id = ++last_id_;
  const int number = fd.get();
  const Transport transport = peer.local ? Transport::kLocal : Transport::kTcp;
  const auto closed = connections_.Arrived(id, transport, peer.name, SteadyNow());
  silent_.emplace(id, Silent{std::move(fd), listener, std::move(peer)});
  Watch(number, kFirstConnection + static_cast<uint64_t>(id), EPOLLIN | EPOLLRDHUP);
  if (closed.has_value()) CloseSilent(*closed);
}

void AcceptLoop::CloseSilent(Id id) {
  const auto found = silent_.find(id);
  if (found == silent_.end()) return;
  // Closing the only descriptor of a socket ends its events, too.
  silent_.erase(found);
}

void AcceptLoop::OnSilent(Id id) {
  const auto found = silent_.find(id);
  char first = 0;
  const ssize_t bytes = recv(found->second.fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  Silent silent = std::move(found->second);
  silent_.erase(found);
  if (bytes <= 0) {
    connections_.Ended(id);
    return;
  }
  HandOver(id, std::move(silent));
}

void AcceptLoop::HandOver(Id id, Silent silent) {
  const int number = silent.fd.get();
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, number, nullptr);
  if (const auto closed = connections_.Spoke(id, SteadyNow())) {
    Warn(absl::StrCat("there are too many connections; one was closed when one of ",
                      silent.peer.name, " came"));
    if (*closed == id) return;
    CloseHandedOver(*closed);
  }
  process::Fd copy(fcntl(number, F_DUPFD_CLOEXEC, 0));
  if (copy.get() < 0) {
    connections_.Ended(id);
    Warn("there is no file descriptor for another connection (`ulimit -n`)");
    return;
  }
  // Only the end of both directions, which epoll always tells.
  Watch(copy.get(), kFirstConnection + static_cast<uint64_t>(id), 0);
  handed_over_.emplace(id, std::move(copy));
  if (!silent.peer.local) {
    const int on = 1;
    setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  const auto& take = listeners_[silent.listener].take;
  take(std::move(silent.fd), silent.peer);
}

void AcceptLoop::OnEnd(Id id) {
  CloseHandedOver(id);
  connections_.Ended(id);
}

void AcceptLoop::CloseHandedOver(Id id) {
  const auto found = handed_over_.find(id);
  const int copy = found->second.get();
  // The socket may live on in the descriptor of whoever took it: its events do not end by
  // themselves, and its peer hears of the end only by this.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, copy, nullptr);
  shutdown(copy, SHUT_RDWR);
  handed_over_.erase(found);
}

}  // namespace muster
