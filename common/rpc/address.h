// Where a coordinator listens: "unix:/PATH", a Unix socket, or "HOST:PORT".
//
// A coordinator always listens on a Unix socket, which its state directory names in the file
// `address`. So whoever may read the state directory finds the coordinator without knowing more.
#ifndef MUSTER_COMMON_RPC_ADDRESS_H_
#define MUSTER_COMMON_RPC_ADDRESS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster {

// The value of an environment variable; empty if it is not set.
using Environment = std::function<std::string(const std::string& name)>;

struct Address {
  // Of a Unix socket, absolute. Empty: host and port count.
  std::string path;
  // A name or a numeric address; of IPv6 without brackets.
  std::string host;
  int port = 0;

  bool local() const { return !path.empty(); }
};

// Whether the name or numeric address leads each machine to itself.
bool IsLoopback(const std::string& host);

// INVALID_ARGUMENT: of neither form.
absl::StatusOr<Address> ParseAddress(const std::string& text);
// As ParseAddress reads it, and as gRPC's channels do.
std::string ToString(const Address& address);

// What a person writes to name a coordinator: an address, or the coordinator's state directory (a
// text that begins with '/' or '.'). Of a state directory in which no coordinator has run yet, this
// is where one will listen. INVALID_ARGUMENT: none of these. PERMISSION_DENIED: it belongs to
// somebody else. UNAVAILABLE: no coordinator has run there, and it is not known where one will
// listen, because the path is too long.
absl::StatusOr<std::string> FindCoordinator(const std::string& text);

// The state directory of a coordinator and of a client to which nobody names one:
// $XDG_STATE_HOME/muster, or ~/.local/state/muster. Empty: neither variable is set.
std::string DefaultStateDirectory(const Environment& environment);

// Whether the path DIRECTORY/socket has no more bytes than the kernel allows (107). The directory
// may be relative to the current one.
bool SocketFits(const std::string& state_directory);

// The path of the socket of a coordinator with this state directory (absolute): DIRECTORY/socket;
// where that does not fit, a name made from it in $XDG_RUNTIME_DIR. Others could guess this name,
// and listen there first, so the directory must be one that they cannot write.
// INVALID_ARGUMENT: it is not set, or is too long as well. FAILED_PRECONDITION: it is no directory
// of this user, or others may write it.
absl::StatusOr<std::string> SocketPath(const std::string& state_directory,
                                       const Environment& environment);
// Lets FindCoordinator find the coordinator. Writes nothing if it does already. Errors: those of
// the file system.
absl::Status WriteAddress(const std::string& state_directory, const std::string& address);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_ADDRESS_H_
