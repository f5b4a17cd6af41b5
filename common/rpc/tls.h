// TLS with certificates on both sides. New connections use files that were replaced while the
// program runs; existing connections continue.
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

// The time between two looks for replaced files.
inline constexpr unsigned kTlsFilesInterval = 1;  // seconds

// Makes credentials for a listener: TLS 1.2 or newer, only clients with a certificate of the CAs in
// files.ca, and only calls that `authorize` and `limit` (null: none) allow. Errors: those of
// certs::CheckTlsFiles, at the start.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(
    const certs::TlsFiles& files, Authorizer authorize, std::shared_ptr<CallLimit> limit = nullptr);

// Makes credentials for a channel to HOST:PORT. The server's certificate must be of the CAs in
// files.ca, for HOST, and for a coordinator. A connection to another server fails, and the error of
// the calls says why. Errors: those of certs::CheckTlsFiles, at the start.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientTls(const certs::TlsFiles& files);

// Makes credentials for a listener without encryption, whose callers have no identity
// (Caller::Kind::kInsecure). Unlike grpc::InsecureServerCredentials, these can refuse calls, by
// `limit`.
std::shared_ptr<grpc::ServerCredentials> PlainCredentials(std::shared_ptr<CallLimit> limit);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_TLS_H_
