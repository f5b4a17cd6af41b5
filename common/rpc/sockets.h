// Sockets that listen.
#ifndef MUSTER_COMMON_RPC_SOCKETS_H_
#define MUSTER_COMMON_RPC_SOCKETS_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/process/fd.h"
#include "common/rpc/address.h"

namespace muster {

struct ListeningSocket {
  process::Fd fd;   // does not block
  Address address;  // with the real port
};

// A Unix socket that only this user may connect to (mode 0600), whatever the umask. A socket that a
// killed process left is replaced. UNAVAILABLE: a process listens there. INVALID_ARGUMENT: there is
// something else. Other errors: the file system's.
//
// Or a TCP socket; port 0 chooses a free one. UNAVAILABLE: the port is in use, or this machine does
// not have the address.
absl::StatusOr<ListeningSocket> Listen(const Address& address);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_SOCKETS_H_
