// Listening sockets.
#ifndef MUSTER_COMMON_RPC_SOCKETS_H_
#define MUSTER_COMMON_RPC_SOCKETS_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "common/process/fd.h"
#include "common/rpc/address.h"

namespace muster {

struct ListeningSocket {
  process::Fd fd;   // does not block
  Address address;  // with the real port
};

// Opens a Unix socket to which only this user may connect (mode 0600), with any umask. Replaces a
// socket that a killed process left. UNAVAILABLE: a process listens there. INVALID_ARGUMENT:
// something else than a socket is there. Other errors: the file system's.
//
// Or opens a TCP socket; port 0 chooses a free one. UNAVAILABLE: the port is in use, or this
// machine does not have the address.
absl::StatusOr<ListeningSocket> Listen(const Address& address);

struct SocketPeer {
  // Whether the peer has connected over a Unix socket, as the user `uid`.
  bool local = false;
  uid_t uid = 0;
  // The name under which the peer's connections are counted: "uid 1000", an IPv4 address, or the
  // /64 network of an IPv6 address, because one host can have all addresses of such a network.
  std::string name;
};

// The peer of a connected socket. Without a name: the connection has ended.
SocketPeer PeerOf(int fd);
// The name of the peer at an address of IPv4 or IPv6.
std::string NetworkPeer(const sockaddr_storage& address);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_SOCKETS_H_
