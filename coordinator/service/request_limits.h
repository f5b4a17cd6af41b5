// The limits of the fields of a request (coordinator/limits/limits.h, docs/limits.md), checked by
// reflection: a new field has the limits of its type without any further code.
#ifndef MUSTER_COORDINATOR_SERVICE_REQUEST_LIMITS_H_
#define MUSTER_COORDINATOR_SERVICE_REQUEST_LIMITS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace muster::service {

// In bytes, of a text field, or of each text of a list.
size_t LongestTextOf(const google::protobuf::FieldDescriptor& field);

// True for 8-4-4-4-12 hexadecimal digits.
bool IsUuid(const std::string& text);

// Checks a request of a client. INVALID_ARGUMENT FIELD_TOO_LONG: a text has too many bytes, or a
// list too many elements; REQUEST_ID_INVALID: `request_id` is neither empty nor a UUID. The error
// names the first such field and never repeats what is too long. A JobSpec in the request has rules
// of its own (common/jobspec) and is left out, and so are lists of numbers, which only the size of
// the request limits. Pure.
absl::Status CheckRequest(const google::protobuf::Message& request);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_REQUEST_LIMITS_H_
