#include "coordinator/service/admission.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <cstdint>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/message_limits.h"

namespace muster::service {
namespace {

struct MinorVersion {
  uint32_t major = 0;
  uint32_t minor = 0;
};

std::optional<MinorVersion> Parse(absl::string_view version) {
  const std::vector<absl::string_view> parts = absl::StrSplit(version, '.');
  MinorVersion parsed;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &parsed.major) ||
      !absl::SimpleAtoi(parts[1], &parsed.minor)) {
    return std::nullopt;
  }
  return parsed;
}

std::string TooFarApart(const std::string& client, const std::string& own) {
  return absl::StrCat("the client has version ", client, " and the coordinator has version ", own,
                      "; they may be one minor version apart: update ");
}

}  // namespace

absl::Status CheckClientVersion(const std::string& user_agent, const std::string& own) {
  absl::string_view rest = user_agent;
  if (!absl::ConsumePrefix(&rest, "muster/")) return absl::OkStatus();
  const std::string version(rest.substr(0, rest.find(' ')));
  const std::optional<MinorVersion> client = Parse(version);
  const std::optional<MinorVersion> coordinator = Parse(own);
  if (!client.has_value() || !coordinator.has_value()) return absl::OkStatus();
  const auto older = [](const MinorVersion& a, const MinorVersion& b) {
    return a.major < b.major || (a.major == b.major && a.minor + 1 < b.minor);
  };
  const About about = {{"client", version}, {"coordinator", own}};
  if (older(*client, *coordinator)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "CLIENT_TOO_OLD",
                  TooFarApart(version, own) + "the client", about);
  }
  if (older(*coordinator, *client)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "CLIENT_TOO_NEW",
                  TooFarApart(version, own) + "the coordinator", about);
  }
  return absl::OkStatus();
}

absl::Status Admit(const grpc::ByteBuffer& bytes, google::protobuf::Message* request) {
  const size_t size = bytes.Valid() ? bytes.Length() : 0;
  if (size > kLimits.request_bytes) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "REQUEST_TOO_LARGE",
        absl::StrCat("the request has ", size, " bytes; expected at most ", kLimits.request_bytes),
        {{"found", absl::StrCat(size)}, {"limit", absl::StrCat(kLimits.request_bytes)}});
  }
  // The readers only look at the buffer, but their constructors are not const.
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
