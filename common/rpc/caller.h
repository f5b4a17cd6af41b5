// Who calls: found for each connection, and known in each call.
#ifndef MUSTER_COMMON_RPC_CALLER_H_
#define MUSTER_COMMON_RPC_CALLER_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>
#include <sys/types.h>

#include <string>

namespace muster {

struct Caller {
  enum class Kind {
    // Over a listener that asks nobody who he is.
    kInsecure,
    // A process of this machine, over a Unix socket; the kernel says whose it is.
    kUser,
    // Over TLS.
    kCertificate,
  };
  Kind kind = Kind::kInsecure;
  // Of kUser.
  uid_t uid = static_cast<uid_t>(-1);
  // Of kCertificate: its common name, "operator/alice". Signed by a CA that is trusted, but not
  // checked (certs::ParseSubject).
  std::string name;
  // Of kCertificate: as certs::NormalSerial.
  std::string serial;
  // The other end's address without its port, "10.0.0.7" or "fd00::7"; empty over a Unix socket,
  // and where only a CallerProcessor asks.
  std::string peer;
};

// "uid 1000", "operator/alice", "an insecure connection from 10.0.0.7". For messages and records;
// characters of a name that are no plain ones are shown as their codes.
std::string ToString(const Caller& caller);

// Who made this call. It is kInsecure if no CallerProcessor belongs to the credentials of the
// connection's listener. Thread-safe; to be called in a handler of the call.
Caller CallerOf(const grpc::ServerContextBase& context);

// The address in what gRPC calls a peer: "ipv6:%5B::1%5D:4242" is "::1", "unix:" is empty.
std::string PeerAddress(const std::string& peer);

// Caller as properties of a connection, for caller_processor.cc. `peer` is not among them.
bool IsIdentified(const grpc::AuthContext& connection);
void Identify(const Caller& caller, grpc::AuthContext* connection);
Caller IdentifiedCaller(const grpc::AuthContext& connection);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CALLER_H_
