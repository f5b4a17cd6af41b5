#include "worker/control/received.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>

namespace muster::control {
namespace {

v1::Command Parsed(const std::string& text) {
  v1::Command command;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &command)) << text;
  return command;
}

TEST(CommandFromWire, LeavesEveryOtherCommandAsItIs) {
  for (const std::string text :
       {"number: 7 at_step: 12 stop {}", "replay: true set_learning_rate { learning_rate: 0.25 }",
        "number: 7 gather_optimizer_state { file { path: '/o' format: SAFETENSORS hold: true } }",
        "begun: true consolidate { folder { path: '/m' dtype: BFLOAT16 } }", "none {}", ""}) {
    const v1::Command command = Parsed(text);
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(
        CommandFromWire(command, {.folder = "/agent/downloads", .job_id = "job"}), command))
        << text;
  }
}

TEST(CommandFromWire, AFileForAClientLiesInTheAgentsFolderWhateverPathIsGiven) {
  const v1::Command wire = Parsed(
      "number: 7 gather_optimizer_state { file { path: '/etc/passwd' download: true hold: true } "
      "}");
  const v1::OptimizerStateFile file =
      CommandFromWire(wire, {.folder = "/agent/downloads", .job_id = "job"})
          .gather_optimizer_state()
          .file();
  EXPECT_EQ(file.path(), "/agent/downloads/job-7");
  EXPECT_TRUE(file.overwrite());
  EXPECT_TRUE(file.download());
  EXPECT_TRUE(file.hold());
  EXPECT_EQ(CommandFromWire(wire).gather_optimizer_state().file().path(), "")
      << "there is no folder";
}

}  // namespace
}  // namespace muster::control
