#include "common/rpc/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/status/status.h"

namespace muster {
namespace {

constexpr int kFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

absl::Status CannotListen(const Address& address, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", ToString(address), ": ", why));
}

sockaddr_un UnixName(const std::string& path) {
  sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
  memcpy(name.sun_path, path.data(), std::min(path.size(), sizeof(name.sun_path) - 1));
  return name;
}

// Removes a socket on which no process listens.
absl::Status MakeRoom(const Address& address) {
  struct stat found;
  if (lstat(address.path.c_str(), &found) != 0) {
    return errno == ENOENT ? absl::OkStatus() : files::ErrnoStatus(errno, "inspect", address.path);
  }
  if (!S_ISSOCK(found.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        address.path, ": there is something that is not a socket; choose another path"));
  }
  const process::Fd probe(socket(AF_UNIX, kFlags, 0));
  const sockaddr_un name = UnixName(address.path);
  const bool answered =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  // EAGAIN: the queue of connections of the other process is full.
  if (answered || errno == EAGAIN) return CannotListen(address, "another process listens there");
  if (errno != ECONNREFUSED) return files::ErrnoStatus(errno, "connect to", address.path);
  if (unlink(address.path.c_str()) != 0 && errno != ENOENT) {
    return files::ErrnoStatus(errno, "remove", address.path);
  }
  return absl::OkStatus();
}

absl::StatusOr<ListeningSocket> ListenOnPath(const Address& address) {
  RETURN_IF_ERROR(MakeRoom(address));
  process::Fd fd(socket(AF_UNIX, kFlags, 0));
  if (fd.get() < 0) return files::ErrnoStatus(errno, "open a socket for", address.path);
  // Sets the mode of the file that bind makes.
  fchmod(fd.get(), 0600);
  const sockaddr_un name = UnixName(address.path);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return files::ErrnoStatus(errno, "listen on", address.path);
  }
  return ListeningSocket{std::move(fd), address};
}

int PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(name).sin_port);
}

absl::StatusOr<ListeningSocket> ListenOnPort(const Address& address) {
  const addrinfo hints{.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) return CannotListen(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  int failed = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    process::Fd fd(socket(one->ai_family, kFlags, 0));
    const int on = 1;
    const int off = 0;
    // Allows the use of a port whose last connections have not quite ended.
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    // "[::]" stands for each address of this machine, also of IPv4.
    if (one->ai_family == AF_INET6) {
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0 && listen(fd.get(), SOMAXCONN) == 0) {
      Address real = address;
      real.port = PortOf(fd.get());
      return ListeningSocket{std::move(fd), std::move(real)};
    }
    failed = errno;
  }
  return CannotListen(address, failed == EADDRINUSE      ? "the port is in use"
                               : failed == EADDRNOTAVAIL ? "this machine does not have the address"
                                                         : strerror(failed));
}

}  // namespace

absl::StatusOr<ListeningSocket> Listen(const Address& address) {
  return address.local() ? ListenOnPath(address) : ListenOnPort(address);
}

SocketPeer PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  if (address.ss_family != AF_UNIX) return {.name = NetworkPeer(address)};
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return {};
  return {.local = true, .uid = credentials.uid, .name = absl::StrCat("uid ", credentials.uid)};
}

std::string NetworkPeer(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text.data(),
              text.size());
    return text.data();
  }
  in6_addr v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  // An IPv4 peer of a listener on all addresses.
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    inet_ntop(AF_INET, &v6.s6_addr[12], text.data(), text.size());
    return text.data();
  }
  std::fill(std::begin(v6.s6_addr) + 8, std::end(v6.s6_addr), 0);
  inet_ntop(AF_INET6, &v6, text.data(), text.size());
  return absl::StrCat(text.data(), "/64");
}

}  // namespace muster
