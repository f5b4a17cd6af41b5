// The rules in job_spec.proto: every field has a rule, and the rules are consistent.
#include "common/jobspec/rules.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using ::testing::IsEmpty;

// Visits every field of JobSpec and of the messages in it, once.
void ForEachField(const std::function<void(const FieldDescriptor&)>& visit) {
  std::set<const Descriptor*> seen;
  const std::function<void(const Descriptor*)> of = [&](const Descriptor* type) {
    if (!seen.insert(type).second) return;
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor& field = *type->field(i);
      visit(field);
      if (field.message_type() != nullptr && !field.is_map()) of(field.message_type());
    }
  };
  of(v1::JobSpec::descriptor());
}

std::vector<std::string> FieldsOfWhich(const std::function<bool(const FieldDescriptor&)>& holds) {
  std::vector<std::string> fields;
  ForEachField([&](const FieldDescriptor& field) {
    if (holds(field)) fields.push_back(field.full_name());
  });
  return fields;
}

TEST(Schema, SaysOfEveryFieldThatIsNoAlternativeWhatHoldsWhereItIsLeftOut) {
  EXPECT_THAT(FieldsOfWhich([](const FieldDescriptor& field) {
                const v1::FieldRule& rule = RuleOf(field);
                const int said =
                    rule.needed() + !rule.default_().empty() + !rule.left_out().empty();
                return said != (field.real_containing_oneof() == nullptr ? 1 : 0);
              }),
              IsEmpty());
}

TEST(Schema, GivesRangesToNumbersOnly) {
  EXPECT_THAT(FieldsOfWhich([](const FieldDescriptor& field) {
                const auto type = field.cpp_type();
                const bool number = type != FieldDescriptor::CPPTYPE_MESSAGE &&
                                    type != FieldDescriptor::CPPTYPE_STRING &&
                                    type != FieldDescriptor::CPPTYPE_ENUM &&
                                    type != FieldDescriptor::CPPTYPE_BOOL;
                const v1::FieldRule& rule = RuleOf(field);
                const bool text = rule.text() != v1::FieldRule::TEXT_UNSPECIFIED;
                return (!AllowedNumbers(rule).empty() && !number) ||
                       (text && type != FieldDescriptor::CPPTYPE_STRING) ||
                       (rule.has_elements() && !field.is_repeated());
              }),
              IsEmpty());
}

// A missing value can be described: a number that is needed has a range, a list of messages has
// alternatives.
TEST(Schema, SaysWhatIsAllowedWhereSomethingIsNeeded) {
  EXPECT_THAT(FieldsOfWhich([](const FieldDescriptor& field) {
                const v1::FieldRule& rule = RuleOf(field);
                if (!rule.needed()) return false;
                if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
                  return field.is_repeated() && field.message_type()->real_oneof_decl_count() == 0;
                }
                if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
                  return rule.text() == v1::FieldRule::TEXT_UNSPECIFIED && rule.allowed().empty();
                }
                return AllowedNumbers(rule).empty();
              }),
              IsEmpty());
}

// A number without presence must have no default, which would look like 0. A default must not break
// its rule, which would look like an error.
TEST(Schema, HasDefaultsThatFitTheirFieldsAndTheirRules) {
  ForEachField([](const FieldDescriptor& field) {
    const v1::FieldRule& rule = RuleOf(field);
    if (rule.default_().empty()) return;
    const auto* prototype = google::protobuf::MessageFactory::generated_factory()->GetPrototype(
        field.containing_type());
    const std::unique_ptr<google::protobuf::Message> message(prototype->New());
    FillDefaults(message.get());
    const auto& reflection = *message->GetReflection();
    if (field.is_repeated()) {
      EXPECT_EQ(reflection.FieldSize(*message, &field), rule.default_().size())
          << field.full_name();
    } else if (field.has_presence() || field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      EXPECT_TRUE(reflection.HasField(*message, &field)) << field.full_name();
    } else {
      EXPECT_THAT(rule.default_(0), ::testing::AnyOf("0", "false", "")) << field.full_name();
    }
    ProblemList problems;
    CheckRules(*message, &problems);
    EXPECT_FALSE(problems.Has(field.name())) << problems.problems().DebugString();
  });
}

TEST(AllowedNumbers, AreSaidInWords) {
  const auto rule = [](auto... set) {
    v1::FieldRule made;
    (set(&made), ...);
    return AllowedNumbers(made);
  };
  const auto at_least = [](double n) { return [n](v1::FieldRule* r) { r->set_at_least(n); }; };
  const auto at_most = [](double n) { return [n](v1::FieldRule* r) { r->set_at_most(n); }; };
  const auto above = [](double n) { return [n](v1::FieldRule* r) { r->set_above(n); }; };
  const auto below = [](double n) { return [n](v1::FieldRule* r) { r->set_below(n); }; };
  EXPECT_EQ(rule(), "");
  EXPECT_EQ(rule(at_least(1), at_most(16777216)), "1 to 16777216");
  EXPECT_EQ(rule(at_least(0), below(1)), "from 0 to below 1");
  EXPECT_EQ(rule(above(0), below(1)), "above 0 and below 1");
  EXPECT_EQ(rule(above(0), at_most(3.5)), "a number above 0, at most 3.5");
  EXPECT_EQ(rule(at_least(0)), "0 or more");
  EXPECT_EQ(rule(above(0)), "a number above 0");
  EXPECT_EQ(rule(at_most(7)), "at most 7");
  EXPECT_EQ(rule(below(7)), "a number below 7");
}

}  // namespace
}  // namespace muster::jobspec
