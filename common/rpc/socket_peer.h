// Who is at the other end of a socket.
#ifndef MUSTER_COMMON_RPC_SOCKET_PEER_H_
#define MUSTER_COMMON_RPC_SOCKET_PEER_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <string>

namespace muster {

struct SocketPeer {
  // It has connected over a Unix socket, as the user `uid`.
  bool local = false;
  uid_t uid = 0;
  // By which its connections are counted: "uid 1000", an IPv4 address, or the /64 network of an
  // IPv6 address, because one host can have all addresses of it.
  std::string name;
};

// Of a connected socket. Without a name: the connection has ended.
SocketPeer PeerOf(int fd);
// Of an address of IPv4 or IPv6.
std::string NetworkPeer(const sockaddr_storage& address);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_SOCKET_PEER_H_
