#include "coordinator/service/peer_limits.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/utf8/utf8.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct TextRule {
  size_t longest = kLimits.text_bytes;
  enum class Beyond { kKeepBegin, kKeepEnd, kRefuse } beyond = Beyond::kKeepBegin;
};

// By name: a name means the same in all messages of agents and workers, unless a rule has the full
// name.
const TextRule& RuleOf(const FieldDescriptor& field) {
  using Beyond = TextRule::Beyond;
  constexpr size_t kId = 255;
  static const auto& rules = *new std::map<std::string, TextRule>{
      {"job_id", {kId, Beyond::kRefuse}},
      {"node", {kLimits.node_bytes, Beyond::kRefuse}},
      {"incarnation", {kId, Beyond::kRefuse}},
      {"agent_id", {kId, Beyond::kRefuse}},
      {"host", {kId, Beyond::kRefuse}},
      {"uuid", {kLimits.gpu_uuid_bytes, Beyond::kRefuse}},
      {"muster.v1.Gpu.name", {kLimits.gpu_name_bytes}},
      {"path", {kLimits.path_bytes, Beyond::kRefuse}},
      {"checkpoint_path", {kLimits.path_bytes, Beyond::kRefuse}},
      {"version", {kId}},
      {"progress", {kLimits.progress_bytes}},
      {"trouble", {kLimits.progress_bytes}},
      {"stage", {kLimits.progress_bytes}},
      {"reason", {kLimits.report_text_bytes}},
      {"message", {kLimits.report_text_bytes}},
      {"start_error", {kLimits.report_text_bytes}},
      {"lines", {kLimits.log_line_bytes}},
      {"log_tail", {kLimits.log_tail_bytes, Beyond::kKeepEnd}},
      // What a model wrote.
      {"text", {kLimits.request_bytes}},
  };
  static const TextRule other;
  auto found = rules.find(field.full_name());
  if (found == rules.end()) found = rules.find(field.name());
  return found == rules.end() ? other : found->second;
}

// No text of so few bytes is beyond a limit.
constexpr size_t kShortest = kLimits.gpu_uuid_bytes;

std::string Cut(const std::string& text, const TextRule& rule) {
  if (rule.beyond == TextRule::Beyond::kKeepEnd) {
    size_t begin = text.size() - rule.longest;
    // Not within a character.
    while (begin < text.size() && (text[begin] & 0xc0) == 0x80) ++begin;
    return absl::StrCat("[", begin, " bytes before] ", text.substr(begin));
  }
  std::string cut = text.substr(0, rule.longest);
  cut.resize(ValidUtf8Prefix(cut));
  return absl::StrCat(cut, " [", text.size() - cut.size(), " more bytes]");
}

absl::Status LimitField(Message* message, const FieldDescriptor& field, int index) {
  const auto& reflection = *message->GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return LimitTexts(index < 0 ? reflection.MutableMessage(message, &field)
                                : reflection.MutableRepeatedMessage(message, &field, index));
  }
  std::string scratch;
  const std::string& text =
      index < 0 ? reflection.GetStringReference(*message, &field, &scratch)
                : reflection.GetRepeatedStringReference(*message, &field, index, &scratch);
  const TextRule& rule = RuleOf(field);
  if (text.size() <= rule.longest) return absl::OkStatus();
  if (rule.beyond == TextRule::Beyond::kRefuse) {
    return Refuse(absl::StatusCode::kInvalidArgument, "FIELD_TOO_LONG",
                  absl::StrCat(field.full_name(), " has ", text.size(), " bytes; expected at most ",
                               rule.longest),
                  {{"field", field.full_name()}, {"limit", absl::StrCat(rule.longest)}});
  }
  const std::string cut = Cut(text, rule);
  index < 0 ? reflection.SetString(message, &field, cut)
            : reflection.SetRepeatedString(message, &field, index, cut);
  return absl::OkStatus();
}

}  // namespace

size_t LongestTextOfPeer(const FieldDescriptor& field) { return RuleOf(field).longest; }

absl::Status LimitTexts(Message* message) {
  // Most submessages are small.
  if (message->ByteSizeLong() <= kShortest) return absl::OkStatus();
  std::vector<const FieldDescriptor*> fields;
  message->GetReflection()->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool text = field->type() == FieldDescriptor::TYPE_STRING;
    if (!text && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(LimitField(message, *field, -1));
      continue;
    }
    const int size = message->GetReflection()->FieldSize(*message, field);
    for (int i = 0; i < size; ++i) RETURN_IF_ERROR(LimitField(message, *field, i));
  }
  return absl::OkStatus();
}

}  // namespace muster::service
