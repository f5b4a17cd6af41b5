// The limits of the texts that agents and workers send (docs/limits.md).
#ifndef MUSTER_COORDINATOR_SERVICE_PEER_LIMITS_H_
#define MUSTER_COORDINATOR_SERVICE_PEER_LIMITS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstddef>

#include "absl/status/status.h"

namespace muster::service {

// In bytes.
size_t LongestTextOfPeer(const google::protobuf::FieldDescriptor& field);

// Cuts each text for people that is longer than its limit; a mark says how many bytes are left out.
// Of a log tail the end stays, of all others the beginning. INVALID_ARGUMENT FIELD_TOO_LONG: a text
// that programs use (an id, a name of a node, a path) is too long; the message must not be used
// then. Texts stay valid UTF-8. Pure.
absl::Status LimitTexts(google::protobuf::Message* message);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_PEER_LIMITS_H_
