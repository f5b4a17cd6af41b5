#include "common/rpc/reflection.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>

namespace muster {

// The library registers itself when it is loaded, and it is loaded because of this call.
void LinkReflection() { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); }

}  // namespace muster
