// How many objects a message would become, counted in its bytes before it is parsed: an empty
// message of 2 bytes takes a hundred bytes of memory and more, and time.
#ifndef MUSTER_COORDINATOR_SERVICE_PARTS_H_
#define MUSTER_COORDINATOR_SERVICE_PARTS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include "absl/status/status.h"
#include "coordinator/limits/limits.h"

namespace muster::service {

// Reads the encoded message of this type until it is clear that it has more parts than allowed.
// RESOURCE_EXHAUSTED TOO_MANY_PARTS. What is no encoded message is left to the parser: OK.
absl::Status CheckParts(google::protobuf::io::ZeroCopyInputStream* bytes,
                        const google::protobuf::Descriptor& type, const MostParts& most);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_PARTS_H_
