// The limits of the messages that the coordinator gets (coordinator/limits/limits.h,
// docs/reference/limits.md). They are checked by reflection: a new field gets the limits of its
// type without further code. Pure.
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

// Reads the encoded message of this type until it has more parts than allowed. RESOURCE_EXHAUSTED
// TOO_MANY_PARTS. Returns OK for bytes that are no encoded message; the parser refuses them.
absl::Status CheckParts(google::protobuf::io::ZeroCopyInputStream* bytes,
                        const google::protobuf::Descriptor& type, const MostParts& most);

// ---- Requests of clients.
// Returns the most bytes of a text field, or of each text of a list.
size_t LongestTextOf(const google::protobuf::FieldDescriptor& field);

// Returns whether the text is 8-4-4-4-12 hexadecimal digits.
bool IsUuid(const std::string& text);

// Checks a request of a client. INVALID_ARGUMENT FIELD_TOO_LONG: a text has too many bytes, or a
// list too many elements. INVALID_ARGUMENT REQUEST_ID_INVALID: `request_id` is neither empty nor a
// UUID. The error names the first such field and never repeats its value. A JobSpec is not checked,
// because it has its own rules (common/jobspec). Lists of numbers are not checked, either: only the
// size of the request limits them.
absl::Status CheckRequest(const google::protobuf::Message& request);

// ---- Messages of agents and workers.
// Returns the most bytes of this text field.
size_t LongestTextOfPeer(const google::protobuf::FieldDescriptor& field);

// Cuts each text for people that is longer than its limit; a mark says how many bytes are left out.
// A log tail keeps its end; other texts keep their beginning. INVALID_ARGUMENT FIELD_TOO_LONG: a
// text for programs (an id, a name of a node, a path) is too long. After an error the message must
// not be used. Texts stay valid UTF-8.
absl::Status LimitTexts(google::protobuf::Message* message);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_MESSAGE_LIMITS_H_
