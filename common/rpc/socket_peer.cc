#include "common/rpc/socket_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace muster {

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
