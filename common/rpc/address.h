// The address of a coordinator: "unix:/PATH" (a Unix socket) or "HOST:PORT".
//
// A coordinator always listens on a Unix socket. The file `address` in its state directory names
// the socket. So everybody who may read the state directory finds the coordinator.
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
  // The absolute path of a Unix socket. Empty: host and port count.
  std::string path;
  // A name or a numeric address, without the brackets of IPv6.
  std::string host;
  int port = 0;

  bool local() const { return !path.empty(); }
};

// Returns whether the name or numeric address leads each machine to itself.
bool IsLoopback(const std::string& host);

// INVALID_ARGUMENT: the text has neither form.
absl::StatusOr<Address> ParseAddress(const std::string& text);
// The form that ParseAddress and gRPC's channels read.
std::string ToString(const Address& address);

// Returns the address of the coordinator that a person names by an address or a state directory (a
// text that begins with '/' or '.'). If no coordinator has run in the state directory yet, this is
// the address of a later one. INVALID_ARGUMENT: neither an address nor such a text.
// PERMISSION_DENIED: the directory belongs to another user. UNAVAILABLE: no coordinator has run
// there, and the address of a later one is not known, because the path is too long.
absl::StatusOr<std::string> FindCoordinator(const std::string& text);

// The default state directory of coordinators and clients: $XDG_STATE_HOME/muster, or
// ~/.local/state/muster. Empty: neither variable is set.
std::string DefaultStateDirectory(const Environment& environment);

// Returns whether the path DIRECTORY/socket has no more bytes than the kernel allows (107). The
// directory may be relative to the current one.
bool SocketFits(const std::string& state_directory);

// The path of the socket of a coordinator with this state directory (absolute): DIRECTORY/socket. A
// path that is too long is replaced by a name in $XDG_RUNTIME_DIR, which is made from the path.
// Other users could guess this name, and listen there first, so they must not be able to write
// $XDG_RUNTIME_DIR. INVALID_ARGUMENT: $XDG_RUNTIME_DIR is not set, or is too long as well.
// FAILED_PRECONDITION: $XDG_RUNTIME_DIR is not a directory of this user, or others may write to it.
absl::StatusOr<std::string> SocketPath(const std::string& state_directory,
                                       const Environment& environment);
// Writes the file `address`, for FindCoordinator, unless the file has this address already. Errors:
// those of the file system.
absl::Status WriteAddress(const std::string& state_directory, const std::string& address);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_ADDRESS_H_
