// TLS with certificates on both sides. Files that are replaced while the program runs are used for
// the next connections; connections that exist go on.
#ifndef MUSTER_COMMON_RPC_TLS_H_
#define MUSTER_COMMON_RPC_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "common/certs/tls_files.h"
#include "common/rpc/call_limit.h"
#include "common/rpc/caller_processor.h"

namespace muster {

// How often replaced files are looked for.
inline constexpr unsigned kTlsFilesInterval = 1;  // seconds

// For a listener: TLS 1.2 or newer, clients with a certificate of the CAs in files.ca only, and
// each call only as `authorize` and `limit` (null: none) allow. Errors: those of
// certs::CheckTlsFiles, at the start.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(
    const certs::TlsFiles& files, Authorizer authorize, std::shared_ptr<CallLimit> limit = nullptr);

// For a channel to HOST:PORT: a server whose certificate is of the CAs in files.ca, for HOST, and
// for a coordinator. A connection to another server fails, and the error of the calls says why.
// Errors: those of certs::CheckTlsFiles, at the start.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientTls(const certs::TlsFiles& files);

// Credentials for a listener without encryption, whose callers are nobody in particular
// (Caller::Kind::kInsecure). They differ from grpc::InsecureServerCredentials, which cannot refuse
// a call, only in the limit.
std::shared_ptr<grpc::ServerCredentials> PlainCredentials(std::shared_ptr<CallLimit> limit);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_TLS_H_
