#include "coordinator/web/listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/sockets.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::web {
namespace {

// The pause before the next connection is accepted when there was no file descriptor.
constexpr absl::Duration kPause = absl::Milliseconds(100);
// The number of connections accepted in a row, so that open connections have their turn.
constexpr int kInARow = 16;

ConnectionLimits ToConnectionLimits(const HttpLimits& limits) {
  return {.silent = limits.requests,
          .handshake = absl::Seconds(limits.request_seconds),
          // The listener itself ends them earlier.
          .trial = absl::Seconds(limits.response_seconds + 1),
          .local = limits.responses,
          .per_peer = limits.responses,
          .total = limits.responses};
}

bool Again(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

}  // namespace

Listener::Listener(ListenerOptions options)
    : options_(std::move(options)), connections_(ToConnectionLimits(options_.limits)) {}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(ListenerOptions options) {
  ASSIGN_OR_RETURN(ListeningSocket listening, Listen(options.address));
  std::unique_ptr<Listener> self(new Listener(std::move(options)));
  self->address_ = std::move(listening.address);
  self->socket_ = std::move(listening.fd);
  self->wake_ = process::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (self->wake_.get() < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot accept connections: ", strerror(errno), " (`ulimit -n`)"));
  }
  self->thread_ = std::thread([raw = self.get()] { raw->Loop(); });
  return self;
}

Listener::~Listener() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
    thread_.join();
  }
  if (address_.local()) unlink(address_.path.c_str());
}

absl::Duration Listener::Wait() const {
  const absl::Time now = SteadyNow();
  absl::Time next = connections_.NextOverdue();
  if (accepts_from_ > now) next = std::min(next, accepts_from_);
  for (const auto& [id, connection] : open_) next = std::min(next, connection.deadline);
  return std::clamp(next - now, absl::ZeroDuration(), absl::Minutes(1));
}

void Listener::Loop() {
  std::vector<pollfd> polled;
  std::vector<Id> ids;
  while (true) {
    polled = {{.fd = wake_.get(), .events = POLLIN},
              {.fd = accepts_from_ > SteadyNow() ? -1 : socket_.get(), .events = POLLIN}};
    ids.clear();
    for (const auto& [id, connection] : open_) {
      const bool sends = connection.response.has_value();
      polled.push_back(
          {.fd = connection.fd.get(), .events = static_cast<short>(sends ? POLLOUT : POLLIN)});
      ids.push_back(id);
    }
    poll(polled.data(), polled.size(), static_cast<int>(absl::ToInt64Milliseconds(Wait())) + 1);
    if (polled[0].revents != 0) return;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto found = open_.find(ids[i]);
      if (polled[i + 2].revents == 0 || found == open_.end()) continue;
      Connection& connection = found->second;
      const bool over =
          connection.response.has_value() ? Send(&connection) : Read(ids[i], &connection);
      if (over) Close(ids[i]);
    }
    CloseOverdue();
    if (polled[1].revents != 0) Accept();
  }
}

void Listener::Accept() {
  for (int i = 0; i < kInARow; ++i) {
    process::Fd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) {
      const bool none = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      // Other file descriptors of the process have precedence.
      if (none) accepts_from_ = SteadyNow() + kPause;
      if (none || errno == EAGAIN || errno == EWOULDBLOCK) return;
      continue;  // it was closed before it was accepted
    }
    const SocketPeer peer = PeerOf(fd.get());
    if (peer.local && peer.uid != geteuid() && peer.uid != 0) continue;
    const Id id = ++last_id_;
    const auto closed = connections_.Arrived(id, peer.local ? Transport::kLocal : Transport::kTcp,
                                             peer.name, SteadyNow());
    open_.emplace(id,
                  Connection{.fd = std::move(fd),
                             .request = Request(options_.limits.request_bytes, options_.hosts)});
    if (closed.has_value()) GiveUp(*closed);
  }
}

bool Listener::Read(Id id, Connection* connection) {
  std::array<char, 4096> bytes;
  const ssize_t count = recv(connection->fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (Again(count)) return false;
  if (count <= 0) return true;
  const absl::string_view piece(bytes.data(), static_cast<size_t>(count));
  if (!connection->request.Take(piece)) return false;
  if (const auto closed = connections_.Spoke(id, SteadyNow())) {
    if (*closed == id) return true;
    GiveUp(*closed);
  }
  const int refused = connection->request.refused();
  connection->response =
      refused != 0 ? Refusal(refused) : options_.respond(connection->request.first_line());
  connection->deadline = SteadyNow() + absl::Seconds(options_.limits.response_seconds);
  return Send(connection);
}

bool Listener::Send(Connection* connection) {
  const std::string& head = connection->response->head;
  const absl::string_view body =
      connection->response->body == nullptr ? "" : absl::string_view(*connection->response->body);
  // The parts of head and body that are left.
  const size_t of_head = std::min(connection->sent, head.size());
  const size_t of_body = connection->sent - of_head;
  std::array<iovec, 2> parts = {
      {{.iov_base = const_cast<char*>(head.data()) + of_head, .iov_len = head.size() - of_head},
       {.iov_base = const_cast<char*>(body.data()) + of_body, .iov_len = body.size() - of_body}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t count = sendmsg(connection->fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (Again(count)) return false;
  if (count < 0) return true;
  connection->sent += static_cast<size_t>(count);
  if (connection->sent < head.size() + body.size()) return false;
  // Unread bytes would make the kernel throw away the response.
  shutdown(connection->fd.get(), SHUT_WR);
  std::array<char, 4096> rest;
  for (int i = 0; i < kInARow; ++i) {
    if (recv(connection->fd.get(), rest.data(), rest.size(), MSG_DONTWAIT) <= 0) break;
  }
  return true;
}

void Listener::Close(Id id) {
  open_.erase(id);
  connections_.Ended(id);
}

void Listener::GiveUp(Id id) {
  // Without SO_LINGER the kernel would keep unsent bytes for minutes.
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(open_.at(id).fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close(id);
}

void Listener::CloseOverdue() {
  const absl::Time now = SteadyNow();
  while (const auto id = connections_.Overdue(now)) GiveUp(*id);
  std::vector<Id> late;
  for (const auto& [id, connection] : open_) {
    if (connection.deadline <= now) late.push_back(id);
  }
  for (const Id id : late) GiveUp(id);
}

}  // namespace muster::web
