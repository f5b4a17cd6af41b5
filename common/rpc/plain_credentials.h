// Credentials for a listener without encryption, whose callers are nobody in particular
// (Caller::Kind::kInsecure). They differ from grpc::InsecureServerCredentials, which cannot refuse
// a call, only in the limit.
#ifndef MUSTER_COMMON_RPC_PLAIN_CREDENTIALS_H_
#define MUSTER_COMMON_RPC_PLAIN_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "common/rpc/call_limit.h"

namespace muster {

std::shared_ptr<grpc::ServerCredentials> PlainCredentials(std::shared_ptr<CallLimit> limit);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_PLAIN_CREDENTIALS_H_
