#include "common/certs/subject.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace muster::certs {
namespace {

using ::testing::HasSubstr;

std::string WhyNot(const std::string& common_name) {
  const auto subject = ParseSubject(common_name);
  EXPECT_EQ(subject.status().code(), absl::StatusCode::kInvalidArgument) << common_name;
  return std::string(subject.status().message());
}

TEST(Subject, EveryRoleIsReadAsItIsWritten) {
  for (const Role role :
       {Role::kCoordinator, Role::kReader, Role::kOperator, Role::kAgent, Role::kWorker}) {
    const std::string text = ToString(Subject{role, "node-1.example_a"});
    const auto subject = ParseSubject(text);
    ASSERT_TRUE(subject.ok()) << subject.status();
    EXPECT_EQ(subject->role, role);
    EXPECT_EQ(ToString(*subject), text);
  }
}

TEST(Subject, OtherTextsAreRefusedWithTheReason) {
  EXPECT_THAT(WhyNot("alice"), HasSubstr("there is no '/'"));
  EXPECT_THAT(WhyNot("admin/alice"), HasSubstr("'admin' is not a role"));
  EXPECT_THAT(WhyNot("Operator/alice"), HasSubstr("'Operator' is not a role"));
  EXPECT_THAT(WhyNot("operator/"), HasSubstr("the name is empty"));
  EXPECT_THAT(WhyNot("operator/a b"), HasSubstr("letters, digits"));
  EXPECT_THAT(WhyNot("operator/../x"), HasSubstr("letters, digits"));
  EXPECT_THAT(WhyNot("operator/.hidden"), HasSubstr("begins with"));
  EXPECT_THAT(WhyNot("agent/" + std::string(59, 'n')), HasSubstr("65 characters"));
  EXPECT_TRUE(ParseSubject("agent/" + std::string(58, 'n')).ok());
}

TEST(Subject, CharactersThatHideSomethingAreShownAsCodes) {
  EXPECT_THAT(WhyNot(std::string("operator/a\0b", 12)), HasSubstr("operator/a\\x00"));
  EXPECT_THAT(WhyNot("operator/\x1b[31m"), HasSubstr("\\x1b"));
}

}  // namespace
}  // namespace muster::certs
