#include "common/rpc/reflection.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>

namespace muster {

// The library registers itself when it is loaded. This call makes the linker load it.
void LinkReflection() { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); }

}  // namespace muster
