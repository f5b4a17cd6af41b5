#include "common/rpc/error.h"

#include <optional>

#include "absl/strings/cord.h"

namespace muster {
namespace {

constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kProblemsUrl[] = "type.googleapis.com/muster.v1.SpecProblems";

template <typename Detail>
std::optional<Detail> Find(const absl::Status& status, const char* url) {
  auto payload = status.GetPayload(url);
  Detail detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) return std::nullopt;
  return detail;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message(status.message());
  v1::ErrorStatus details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  status.ForEachPayload([&details](absl::string_view url, const absl::Cord& payload) {
    auto* detail = details.add_details();
    detail->set_type_url(std::string(url));
    detail->set_value(std::string(payload));
  });
  if (details.details().empty()) return grpc::Status(code, message);
  return grpc::Status(code, message, details.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  v1::ErrorStatus details;
  if (!details.ParseFromString(status.error_details())) return result;
  for (const auto& detail : details.details()) {
    result.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  }
  return result;
}

absl::Status MakeError(absl::StatusCode code, const std::string& reason, const std::string& message,
                       const std::map<std::string, std::string>& metadata) {
  absl::Status status(code, message);
  v1::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("muster");
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  status.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

std::string ErrorReason(const absl::Status& status) {
  const auto info = Find<v1::ErrorInfo>(status, kErrorInfoUrl);
  return info.has_value() ? info->reason() : std::string();
}

void AttachProblems(absl::Status* status, const v1::SpecProblems& problems) {
  if (!status->ok()) status->SetPayload(kProblemsUrl, absl::Cord(problems.SerializeAsString()));
}

v1::SpecProblems Problems(const absl::Status& status) {
  return Find<v1::SpecProblems>(status, kProblemsUrl).value_or(v1::SpecProblems());
}

}  // namespace muster
