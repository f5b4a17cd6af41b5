#include "common/rpc/error.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/utf8/utf8.h"

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

// The room for a message. gRPC limits the trailers of a call, which have the error, to 8 KiB.
// Larger trailers would replace the error by an error about the trailers.
constexpr size_t kMessageBudget = 4500;
constexpr size_t kMetadataBudget = 400;

// The bytes that a character takes in the trailers, as grpc-message and in the details. A
// grpc-message uses three bytes for most characters other than ASCII letters; the details are in
// base64.
size_t CostOf(char c) {
  const bool plain = c >= ' ' && c <= '~' && c != '%';
  return (plain ? 1 : 3) + 2;
}

// The text, or its beginning within the budget, with a mark.
std::string Fitting(const std::string& text, size_t budget) {
  size_t cost = 0;
  size_t end = 0;
  while (end < text.size() && (cost += CostOf(text[end])) <= budget) ++end;
  if (end == text.size()) return text;
  std::string cut = text.substr(0, end);
  cut.resize(ValidUtf8Prefix(cut));
  return absl::StrCat(cut, "... [", text.size() - cut.size(), " more bytes]");
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = Fitting(std::string(status.message()), kMessageBudget);
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
  for (const auto& [name, value] : metadata) {
    (*info.mutable_metadata())[name] = Fitting(value, kMetadataBudget);
  }
  status.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

std::string ErrorReason(const absl::Status& status) {
  const auto info = Find<v1::ErrorInfo>(status, kErrorInfoUrl);
  return info.has_value() ? info->reason() : std::string();
}

std::string ErrorDomain(const absl::Status& status) {
  const auto info = Find<v1::ErrorInfo>(status, kErrorInfoUrl);
  return info.has_value() ? info->domain() : std::string();
}

std::map<std::string, std::string> ErrorMetadata(const absl::Status& status) {
  const auto info = Find<v1::ErrorInfo>(status, kErrorInfoUrl);
  if (!info.has_value()) return {};
  return {info->metadata().begin(), info->metadata().end()};
}

void AttachProblems(absl::Status* status, const v1::SpecProblems& problems) {
  if (!status->ok()) status->SetPayload(kProblemsUrl, absl::Cord(problems.SerializeAsString()));
}

v1::SpecProblems Problems(const absl::Status& status) {
  return Find<v1::SpecProblems>(status, kProblemsUrl).value_or(v1::SpecProblems());
}

}  // namespace muster
