// The limits of the messages that the coordinator gets (coordinator/limits/limits.h,
// docs/reference/limits.md), checked by reflection: a new field has the limits of its type without
// any further code. Pure.
#ifndef MUSTER_COORDINATOR_SERVICE_MESSAGE_LIMITS_H_
#define MUSTER_COORDINATOR_SERVICE_MESSAGE_LIMITS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "coordinator/limits/limits.h"

namespace muster::service {

// Reads the encoded message of this type until it is clear that it has more parts than allowed.
// RESOURCE_EXHAUSTED TOO_MANY_PARTS. What is no encoded message is left to the parser: OK.
absl::Status CheckParts(google::protobuf::io::ZeroCopyInputStream* bytes,
                        const google::protobuf::Descriptor& type, const MostParts& most);

// ---- Requests of clients.
// In bytes, of a text field, or of each text of a list.
size_t LongestTextOf(const google::protobuf::FieldDescriptor& field);

// True for 8-4-4-4-12 hexadecimal digits.
bool IsUuid(const std::string& text);

// Checks a request of a client. INVALID_ARGUMENT FIELD_TOO_LONG: a text has too many bytes, or a
// list too many elements; REQUEST_ID_INVALID: `request_id` is neither empty nor a UUID. The error
// names the first such field and never repeats what is too long. A JobSpec in the request has rules
// of its own (common/jobspec) and is left out, and so are lists of numbers, which only the size of
// the request limits.
absl::Status CheckRequest(const google::protobuf::Message& request);

// ---- Messages of agents and workers.
// In bytes.
size_t LongestTextOfPeer(const google::protobuf::FieldDescriptor& field);

// Cuts each text for people that is longer than its limit; a mark says how many bytes are left out.
// Of a log tail the end stays, of all others the beginning. INVALID_ARGUMENT FIELD_TOO_LONG: a text
// that programs use (an id, a name of a node, a path) is too long; the message must not be used
// then. Texts stay valid UTF-8.
absl::Status LimitTexts(google::protobuf::Message* message);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_MESSAGE_LIMITS_H_
