// The caller of a call: found for each connection, and known in each call.
#ifndef MUSTER_COMMON_RPC_CALLER_H_
#define MUSTER_COMMON_RPC_CALLER_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>
#include <sys/types.h>

#include <string>

namespace muster {

struct Caller {
  enum class Kind {
    // A caller over a listener that asks nobody for an identity.
    kInsecure,
    // A process of this machine, over a Unix socket; the kernel says which user's.
    kUser,
    // A caller with a certificate, over TLS.
    kCertificate,
  };
  Kind kind = Kind::kInsecure;
  // The user of kUser.
  uid_t uid = static_cast<uid_t>(-1);
  // The common name of kCertificate, such as "operator/alice". A trusted CA has signed it; its form
  // is not checked (certs::ParseSubject).
  std::string name;
  // The serial number of kCertificate, as certs::NormalSerial writes it.
  std::string serial;
  // The other end's address without its port, "10.0.0.7" or "fd00::7". Empty over a Unix socket,
  // and in a CallerProcessor.
  std::string peer;
};

// "uid 1000", "operator/alice", "an insecure connection from 10.0.0.7", for messages and records.
// Characters of a name that are not plain are shown as their codes.
std::string ToString(const Caller& caller);

// The caller of a call. Called in a handler of the call. The kind is kInsecure if the credentials
// of the connection's listener have no CallerProcessor. Thread-safe.
Caller CallerOf(const grpc::ServerContextBase& context);

// The address in a peer as gRPC writes it: "ipv6:%5B::1%5D:4242" is "::1", "unix:" is empty.
std::string PeerAddress(const std::string& peer);

// The caller as properties of a connection, without `peer`, for caller_processor.cc.
bool IsIdentified(const grpc::AuthContext& connection);
void Identify(const Caller& caller, grpc::AuthContext* connection);
Caller IdentifiedCaller(const grpc::AuthContext& connection);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CALLER_H_
