#include "coordinator/service/request_limits.h"

#include <cctype>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobspec/sizes.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// By name: a name means the same in every request.
const std::map<std::string, size_t>& LongestByName() {
  static const auto& longest = *new std::map<std::string, size_t>{
      {"job_id", kLimits.job_id_bytes},
      // Of an operation.
      {"name", kLimits.operation_name_bytes},
      {"node", kLimits.node_bytes},
      {"requested_by", kLimits.requested_by_bytes},
      {"page_token", kLimits.page_token_bytes},
      {"path", kLimits.path_bytes},
      {"job_file", kLimits.path_bytes},
      {"from", kLimits.path_bytes},
      {"freeze", jobspec::kLongestPattern},
      {"unfreeze", jobspec::kLongestPattern},
      // A prompt: the context of the model limits it.
      {"text", kLimits.request_bytes},
      // A job file.
      {"yaml", kLimits.job_text_bytes},
  };
  return longest;
}

absl::Status TooLong(const std::string& path, size_t found, const std::string& what, size_t limit) {
  return Refuse(absl::StatusCode::kInvalidArgument, "FIELD_TOO_LONG",
                absl::StrCat(path, " has ", found, " ", what, "; expected at most ", limit),
                {{"field", path}, {"found", absl::StrCat(found)}, {"limit", absl::StrCat(limit)}});
}

absl::Status CheckText(const std::string& text, const FieldDescriptor& field,
                       const std::string& path) {
  if (field.name() == "request_id") {
    if (text.empty() || IsUuid(text)) return absl::OkStatus();
    const std::string shown = text.size() <= 64 ? text : absl::StrCat(text.size(), " bytes");
    return Refuse(absl::StatusCode::kInvalidArgument, "REQUEST_ID_INVALID",
                  absl::StrCat(path, ": found '", shown,
                               "'; expected a UUID, such as "
                               "\"123e4567-e89b-42d3-a456-426614174000\", a new one for each "
                               "request"),
                  {{"field", path}});
  }
  const size_t longest = LongestTextOf(field);
  return text.size() <= longest ? absl::OkStatus() : TooLong(path, text.size(), "bytes", longest);
}

absl::Status CheckMessage(const Message& message, const std::string& parent) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool text = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    const bool child = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!text && !child) continue;
    if (child && field->message_type() == v1::JobSpec::descriptor()) continue;
    const std::string path = absl::StrCat(parent, field->name());
    const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    if (field->is_repeated() && size > kLimits.list_elements) {
      return TooLong(path, static_cast<size_t>(size), "elements",
                     static_cast<size_t>(kLimits.list_elements));
    }
    std::string scratch;
    for (int i = 0; i < size; ++i) {
      const std::string at = field->is_repeated() ? absl::StrCat(path, "[", i, "]") : path;
      if (text) {
        RETURN_IF_ERROR(
            CheckText(field->is_repeated()
                          ? reflection.GetRepeatedStringReference(message, field, i, &scratch)
                          : reflection.GetStringReference(message, field, &scratch),
                      *field, at));
      } else {
        RETURN_IF_ERROR(CheckMessage(field->is_repeated()
                                         ? reflection.GetRepeatedMessage(message, field, i)
                                         : reflection.GetMessage(message, field),
                                     absl::StrCat(at, ".")));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t LongestTextOf(const FieldDescriptor& field) {
  const auto found = LongestByName().find(field.name());
  return found == LongestByName().end() ? kLimits.text_bytes : found->second;
}

bool IsUuid(const std::string& text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool right = dash ? text[i] == '-' : isxdigit(static_cast<unsigned char>(text[i])) != 0;
    if (!right) return false;
  }
  return true;
}

absl::Status CheckRequest(const Message& request) { return CheckMessage(request, ""); }

}  // namespace muster::service
