#include "worker/control/reach.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/process/process.h"
#include "common/rpc/address.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "worker/train/ranks/failure.h"

namespace muster::control {
namespace {

constexpr absl::Duration kAttempt = absl::Seconds(2);
constexpr absl::Duration kPause = absl::Milliseconds(200);

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  bool is_v6() const { return storage.ss_family == AF_INET6; }
};

absl::StatusOr<SocketAddress> ParseAddress(const std::string& host, uint16_t port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    address.storage.ss_family = AF_INET;
    v4->sin_port = htons(port);
    address.length = sizeof(*v4);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    address.storage.ss_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.length = sizeof(*v6);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("'", host, "' is not a numeric address"));
  }
  return address;
}

std::string Shown(const std::string& host, uint16_t port) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

// Returns the errno of one attempt; 0: the peer answered.
int TryConnect(SocketAddress& address) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  int error = connect(fd, address.get(), address.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd entry = {.fd = fd, .events = POLLOUT, .revents = 0};
    error = ETIMEDOUT;
    socklen_t length = sizeof(error);
    if (poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(kAttempt))) > 0) {
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  close(fd);
  return error;
}

std::string Trouble(const Peer& peer, int error) {
  const std::string what = absl::StrCat("cannot reach rank ", peer.rank, " at ",
                                        Shown(peer.host, peer.port), " (", strerror(error), "): ");
  if (IsLoopback(peer.host) && (error == ENETUNREACH || error == EADDRNOTAVAIL)) {
    return absl::StrCat(what, "the loopback interface of this machine is down (ip link set lo up)");
  }
  if (IsLoopback(peer.host)) {
    return absl::StrCat(what, peer.host,
                        " leads each machine to itself; start the agent of each node with "
                        "`muster-agent --host ADDRESS`, the address at which the other nodes reach "
                        "it");
  }
  return absl::StrCat(what,
                      "that is the address of its node's agent; if other nodes reach the node at "
                      "another one, start its agent with `muster-agent --host ADDRESS`; does a "
                      "firewall keep the nodes apart?");
}

// Returns an error which says that this node cannot take any rank of the job, but another node may.
absl::Status FaultOfThisNode(const std::string& what) {
  return train::WithCause(absl::FailedPreconditionError(what), train::Cause::kNodeFault);
}

constexpr char kMoreOpenFiles[] =
    "allow muster-agent more open files (LimitNOFILE= in its service, `ulimit -n` in its shell) "
    "and start it again";

}  // namespace

absl::StatusOr<std::unique_ptr<ReachListener>> ReachListener::Open(const std::string& host) {
  auto address = ParseAddress(host, 0);
  if (!address.ok()) return address.status();
  const auto failed = [&host](const char* call) -> absl::Status {
    const std::string what =
        absl::StrCat("cannot listen on ", host, ": ", call, ": ", strerror(errno));
    if (errno != EADDRNOTAVAIL) return absl::UnavailableError(what);
    return FaultOfThisNode(absl::StrCat(
        what, ": no interface of this machine that is up has this address; bring it up, or start "
              "the agent of this node with `muster-agent --host ADDRESS`, the address at which "
              "other nodes reach it"));
  };
  const int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return failed("socket");
  // Connections that nobody accepts wait in the kernel, up to its limit.
  if (bind(fd, address->get(), address->length) != 0 || listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, address->get(), &address->length) != 0) {
    const absl::Status status = failed("bind");
    close(fd);
    return status;
  }
  const uint16_t port = address->is_v6()
                            ? reinterpret_cast<sockaddr_in6*>(&address->storage)->sin6_port
                            : reinterpret_cast<sockaddr_in*>(&address->storage)->sin_port;
  return std::unique_ptr<ReachListener>(new ReachListener(fd, ntohs(port)));
}

ReachListener::~ReachListener() { close(fd_); }

absl::Status AwaitReachable(const Peer& peer, const TellTrouble& tell, const Patience& patience) {
  ASSIGN_OR_RETURN(SocketAddress address, ParseAddress(peer.host, peer.port));
  const absl::Time began = SteadyNow();
  for (bool told = false;; absl::SleepFor(kPause)) {
    const int error = TryConnect(address);
    if (error == 0) {
      if (told) tell("");
      return absl::OkStatus();
    }
    const std::string trouble = Trouble(peer, error);
    const absl::Duration waited = SteadyNow() - began;
    if (waited >= patience.end) {
      return IsLoopback(peer.host) ? absl::FailedPreconditionError(trouble)
                                   : absl::UnavailableError(trouble);
    }
    if (waited < patience.tell) continue;
    told = true;
    tell(trouble);
  }
}

absl::Status CheckFamilies(int64_t rank, const std::string& host, const Peer& peer) {
  ASSIGN_OR_RETURN(const SocketAddress own, ParseAddress(host, 0));
  ASSIGN_OR_RETURN(const SocketAddress other, ParseAddress(peer.host, 0));
  if (own.is_v6() == other.is_v6()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank, " has the address ", host, " and rank ", peer.rank, " has ", peer.host,
      ": ranks with IPv4 and with IPv6 cannot be connected; start all agents with a `--host` of "
      "one kind"));
}

absl::Status CheckOpenFiles(int64_t rank, int64_t world_size, int meshes) {
  // The connections between two ranks in each mesh, one for each direction (comm/gloo/mesh.cc).
  constexpr int64_t kConnections = 2;
  // Room for other files of the mesh, and for data, checkpoints and logs.
  constexpr int64_t kOthers = 100;
  constexpr size_t kUnlimited = size_t{1} << 32;
  const auto limit = static_cast<int64_t>(std::min(process::RaiseOpenFiles(), kUnlimited));
  std::error_code ignored;
  int64_t open = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", ignored), end; it != end;
       it.increment(ignored)) {
    ++open;
  }
  const int64_t of_store = rank == 0 ? world_size : 1;
  const int64_t needed =
      open + kOthers + of_store + meshes * kConnections * (world_size - 1);
  if (needed <= limit) return absl::OkStatus();
  return FaultOfThisNode(
      absl::StrCat("a rank that connects with ", world_size - 1, " others needs about ", needed,
                   " open files, and this process may have ", limit, ": ", kMoreOpenFiles));
}

absl::Status ExplainOpenFiles(const absl::Status& error) {
  if (!absl::StrContains(error.message(), strerror(EMFILE))) return error;
  return FaultOfThisNode(
      absl::StrCat(Message(error), "; this process may not open more files: ", kMoreOpenFiles));
}

}  // namespace muster::control
