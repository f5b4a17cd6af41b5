#include "common/commands/command_rule.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <map>
#include <utility>

#include "absl/strings/ascii.h"

namespace muster::commands {
namespace {

using Kind = v1::Operation::Kind;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;

const OneofDescriptor* Commands() { return v1::Command::descriptor()->FindOneofByName("kind"); }

const v1::CommandRule& OptionOf(const FieldDescriptor& field) {
  return field.message_type()->options().GetExtension(v1::command);
}

// The field that is set. Null: none, or one of a newer program.
const FieldDescriptor* FieldOf(const v1::Command& command) {
  return v1::Command::GetReflection()->GetOneofFieldDescriptor(command, Commands());
}

std::map<Kind, v1::CommandRule> ReadRules() {
  std::map<Kind, v1::CommandRule> rules;
  for (int i = 0; i < Commands()->field_count(); ++i) {
    const v1::CommandRule& rule = OptionOf(*Commands()->field(i));
    rules[rule.kind()] = rule;
    if (rule.dry_run() == v1::Operation::KIND_UNSPECIFIED) continue;
    v1::CommandRule dry_run = rule;
    dry_run.set_kind(rule.dry_run());
    dry_run.set_nature(v1::CommandRule::ANSWERS);
    dry_run.clear_dry_run();
    rules[rule.dry_run()] = std::move(dry_run);
  }
  return rules;
}

}  // namespace

Kind KindOf(const v1::Command& command) {
  const FieldDescriptor* const field = FieldOf(command);
  if (field == nullptr) return v1::Operation::KIND_UNSPECIFIED;
  const v1::CommandRule& rule = OptionOf(*field);
  if (rule.dry_run() == v1::Operation::KIND_UNSPECIFIED) return rule.kind();
  const auto& contents = v1::Command::GetReflection()->GetMessage(command, field);
  const FieldDescriptor* const dry_run = field->message_type()->FindFieldByName("dry_run");
  return contents.GetReflection()->GetBool(contents, dry_run) ? rule.dry_run() : rule.kind();
}

const v1::CommandRule& RuleOf(Kind kind) {
  static const auto& rules = *new std::map<Kind, v1::CommandRule>(ReadRules());
  const auto found = rules.find(kind);
  return found == rules.end() ? v1::CommandRule::default_instance() : found->second;
}

std::string Name(Kind kind) {
  if (kind == v1::Operation::KIND_UNSPECIFIED) return "lost";
  const std::string& name = v1::Operation::Kind_Name(kind);
  return name.empty() ? "unknown" : absl::AsciiStrToLower(name);
}

std::string FieldName(const v1::Command& command) {
  const FieldDescriptor* const field = FieldOf(command);
  return field == nullptr ? "" : field->name();
}

}  // namespace muster::commands
