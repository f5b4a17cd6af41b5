// Texts of others (jobs, nodes, log lines) cannot control the terminal, in any field.
#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <string>
#include <utility>
#include <vector>

#include "client/cli/cli_fixture.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Escapes in all forms, ends of lines, and an override of the direction. Valid UTF-8, as texts in
// messages are.
constexpr char kHostile[] = "a\x1b[2J\r\n\x7f\xc2\x9b\x33\x31m\u202e\u2066z";

// Sets every text below `message`, with one element in each list, down to a depth.
void Fill(google::protobuf::Message* message, int depth) {
  const auto* type = message->GetDescriptor();
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* field = type->field(i);
    const bool is_text =
        field->type() == google::protobuf::FieldDescriptor::TYPE_STRING && !field->is_map();
    if (is_text && field->is_repeated()) {
      reflection->AddString(message, field, kHostile);
    } else if (is_text && reflection->GetString(*message, field).empty()) {
      reflection->SetString(message, field, kHostile);
    } else if (field->message_type() != nullptr && !field->is_map() && depth > 0 &&
               field->message_type()->full_name().rfind("google.", 0) != 0) {
      Fill(field->is_repeated() ? reflection->AddMessage(message, field)
                                : reflection->MutableMessage(message, field),
           depth - 1);
    }
  }
}

// The characters that a terminal would take for more than text.
std::string Controls(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool line = byte == '\n' || byte == '\t' || (byte == '\r' && text[i + 1] == '\n');
    if ((byte < 0x20 && !line) || byte == 0x7f) return text.substr(0, i);
  }
  for (const char* harmful : {"\xc2\x9b", "\u202e", "\u2066"}) {
    if (text.find(harmful) != std::string::npos) return harmful;
  }
  return "";
}

class HostileTextTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    job_.set_id("a");
    job_.set_state(v1::Job::FAILED);
    Fill(&job_, 3);
    service_.Put(job_);
    v1::ListNodesResponse nodes;
    Fill(&nodes, 3);
    cluster_.Put(nodes);
    v1::LogLine line;
    line.set_sequence(1);
    line.set_text(kHostile);
    service_.AddLog("a", line);
  }

  v1::Job job_;
};

TEST_F(HostileTextTest, CannotControlTheTerminal) {
  const std::vector<std::vector<std::string>> commands = {
      {"list"},      {"get", "a"},  {"ranks", "a"}, {"watch", "a"},
      {"logs", "a"}, {"wait", "a"}, {"nodes"}};
  for (const auto& command : commands) {
    Muster(command);
    EXPECT_THAT(out() + err(), HasSubstr("a\\x1b[2J")) << command[0];
    EXPECT_EQ(Controls(out()), "") << command[0] << ": " << out();
    EXPECT_EQ(Controls(err()), "") << command[0] << ": " << err();
  }
  // A text in a list must not look like another line.
  Muster({"logs", "a"});
  EXPECT_EQ(out(), "[0.0] a\\x1b[2J\\x0d\\n\\u007f\\u009b31m\\u202e\\u2066z\n");
}

TEST_F(HostileTextTest, InAnErrorOrAnArgumentCannotEither) {
  service_.Remove("a");
  Muster({"get", kHostile});
  EXPECT_THAT(err(), HasSubstr("a\\x1b[2J"));
  EXPECT_EQ(Controls(out() + err()), "");
  Muster({kHostile});
  EXPECT_THAT(err(), HasSubstr("there is no command 'a\\x1b[2J"));
  EXPECT_EQ(Controls(err()), "");
  Write("job.yaml", std::string("name: 'a\xc2\x9b") + "31m'\n");
  Muster({"validate", folder_.Path("job.yaml")});
  EXPECT_THAT(err(), HasSubstr("name"));
  EXPECT_EQ(Controls(err()), "");
}

TEST_F(HostileTextTest, IsWholeInADocument) {
  EXPECT_EQ(Muster({"get", "a", "-o", "json"}), kDone);
  EXPECT_EQ(Controls(out()), "");
  v1::Job json;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &json).ok()) << out();
  EXPECT_EQ(json.state_reason(), kHostile);
  EXPECT_EQ(Muster({"get", "a", "-o", "yaml"}), kDone);
  EXPECT_EQ(Controls(out()), "");
  EXPECT_EQ(YAML::Load(out())["state_reason"].as<std::string>(), kHostile);
}

}  // namespace
}  // namespace muster::cli
