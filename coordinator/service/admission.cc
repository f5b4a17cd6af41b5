#include "coordinator/service/admission.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/parts.h"
#include "coordinator/service/request_limits.h"

namespace muster::service {

absl::Status Admit(const grpc::ByteBuffer& bytes, google::protobuf::Message* request) {
  const size_t size = bytes.Valid() ? bytes.Length() : 0;
  if (size > kLimits.request_bytes) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "REQUEST_TOO_LARGE",
        absl::StrCat("the request has ", size, " bytes; expected at most ", kLimits.request_bytes),
        {{"found", absl::StrCat(size)}, {"limit", absl::StrCat(kLimits.request_bytes)}});
  }
  // The readers only look at the buffer, but their constructors do not say so.
  grpc::ByteBuffer whole = bytes;
  if (bytes.Valid()) {
    grpc::ProtoBufferReader counted(&whole);
    RETURN_IF_ERROR(CheckParts(&counted, *request->GetDescriptor(), kLimits.request_parts));
  }
  grpc::ProtoBufferReader reader(&whole);
  if (!bytes.Valid() || !reader.status().ok() || !request->ParseFromZeroCopyStream(&reader)) {
    return Refuse(
        absl::StatusCode::kInvalidArgument, "REQUEST_UNREADABLE",
        absl::StrCat("the request's ", size, " bytes are no message of the type ",
                     request->GetDescriptor()->full_name(), " (texts must be valid UTF-8)"),
        {{"type", request->GetDescriptor()->full_name()}});
  }
  return CheckRequest(*request);
}

}  // namespace muster::service
