// The reflection service of gRPC.
#ifndef MUSTER_COMMON_RPC_REFLECTION_H_
#define MUSTER_COMMON_RPC_REFLECTION_H_

namespace muster {

// Links the service into the program. Call before Server::Start with ServerOptions::reflection. A
// program without this call has no reflection service.
void LinkReflection();

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_REFLECTION_H_
