#include "coordinator/service/message_limits.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cctype>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobspec/sizes.h"
#include "common/status/status.h"
#include "common/utf8/utf8.h"
#include "coordinator/membership/refusal.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::internal::WireFormatLite;

// The depth to which protobuf parses.
constexpr int kDeepest = 100;

class Counter {
 public:
  Counter(google::protobuf::io::ZeroCopyInputStream* bytes, const MostParts& most)
      : input_(bytes), most_(most) {}

  // Counts until the end of the message, until there are too many parts, or until the bytes are no
  // encoded message.
  bool Count(const Descriptor& type, int depth) {
    while (const uint32_t tag = input_.ReadTag()) {
      const auto* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (field == nullptr && ++texts_ > most_.texts) return false;
      if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
        if (!WireFormatLite::SkipField(&input_, tag)) return false;
        continue;
      }
      uint32_t size = 0;
      if (!input_.ReadVarint32(&size)) return false;
      if (field == nullptr || field->type() != FieldDescriptor::TYPE_MESSAGE) {
        if (field != nullptr && !field->is_packable() && ++texts_ > most_.texts) return false;
        if (!input_.Skip(static_cast<int>(size))) return false;
        continue;
      }
      if (++messages_ > most_.messages || depth == kDeepest) return false;
      const auto outer = input_.PushLimit(static_cast<int>(size));
      if (!Count(*field->message_type(), depth + 1)) return false;
      if (input_.BytesUntilLimit() != 0) return false;
      input_.PopLimit(outer);
    }
    return true;
  }

  bool too_many() const { return messages_ > most_.messages || texts_ > most_.texts; }

 private:
  google::protobuf::io::CodedInputStream input_;
  const MostParts most_;
  size_t messages_ = 0;
  size_t texts_ = 0;
};

// The limits by field name. A name means the same in every request.
const std::map<std::string, size_t>& LongestByName() {
  static const auto& longest = *new std::map<std::string, size_t>{
      {"job_id", kLimits.job_id_bytes},
      // The name of an operation.
      {"name", kLimits.operation_name_bytes},
      {"node", kLimits.node_bytes},
      {"requested_by", kLimits.requested_by_bytes},
      {"page_token", kLimits.page_token_bytes},
      {"path", kLimits.path_bytes},
      {"job_file", kLimits.path_bytes},
      {"from", kLimits.path_bytes},
      {"freeze", jobspec::kLongestPattern},
      {"unfreeze", jobspec::kLongestPattern},
      // A prompt, which the model's context limits.
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

struct TextRule {
  size_t longest = kLimits.text_bytes;
  enum class Beyond { kKeepBegin, kKeepEnd, kRefuse } beyond = Beyond::kKeepBegin;
};

// Returns the rule by field name. A name means the same in all messages of agents and workers,
// unless a rule has the full name.
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
      // Text that a model wrote.
      {"text", {kLimits.request_bytes}},
  };
  static const TextRule other;
  auto found = rules.find(field.full_name());
  if (found == rules.end()) found = rules.find(field.name());
  return found == rules.end() ? other : found->second;
}

// The size up to which no text is beyond a limit.
constexpr size_t kShortest = kLimits.gpu_uuid_bytes;

std::string Cut(const std::string& text, const TextRule& rule) {
  if (rule.beyond == TextRule::Beyond::kKeepEnd) {
    size_t begin = text.size() - rule.longest;
    // The cut must not be within a character.
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

absl::Status CheckParts(google::protobuf::io::ZeroCopyInputStream* bytes, const Descriptor& type,
                        const MostParts& most) {
  Counter counter(bytes, most);
  counter.Count(type, 1);
  if (!counter.too_many()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_PARTS",
                absl::StrCat("a message of the type ", type.full_name(), " has more than ",
                             most.messages, " messages or ", most.texts,
                             " texts within it; long lists can be given as files"),
                {{"limit", absl::StrCat(most.messages)}, {"type", type.full_name()}});
}

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
