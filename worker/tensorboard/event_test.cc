#include "worker/tensorboard/event.h"

#include <gtest/gtest.h>

#include <sstream>

namespace muster::tensorboard {
namespace {

Event ReadBack(const Event& event) {
  std::istringstream file(RecordOf(event));
  Event read;
  EXPECT_TRUE(read.ParseFromString(ReadRecord(file).value()));
  return read;
}

TEST(Event, OfAFilesBeginSaysTheVersion) {
  const Event event = ReadBack(VersionEvent(1.5));
  EXPECT_EQ(event.file_version(), "brain.Event:2");
  EXPECT_EQ(event.wall_time(), 1.5);
}

TEST(Event, OfAStartHasItsStep) {
  const Event event = ReadBack(StartEvent(7, 1.5));
  EXPECT_EQ(event.session_log().status(), SessionLog::START);
  EXPECT_EQ(event.step(), 7);
}

TEST(Event, HasNumbersAndTexts) {
  Event event = EventAt(3, 2.5);
  AddNumber("loss", 0.1, &event);
  AddText("marks", "a text", &event);
  const Event read = ReadBack(event);
  EXPECT_EQ(read.step(), 3);
  EXPECT_EQ(read.wall_time(), 2.5);
  ASSERT_EQ(read.summary().value_size(), 2);
  EXPECT_EQ(read.summary().value(0).tag(), "loss");
  EXPECT_EQ(read.summary().value(0).simple_value(), 0.1f);
  EXPECT_EQ(read.summary().value(1).tag(), "marks");
  EXPECT_EQ(read.summary().value(1).tensor().string_val(0), "a text");
  EXPECT_EQ(read.summary().value(1).metadata().plugin_data().plugin_name(), "text");
}

TEST(Event, HasAValueThatIsNoNumber) {
  Event event = EventAt(3, 1);
  AddNoNumber("loss", &event);
  const Event read = ReadBack(event);
  ASSERT_EQ(read.summary().value_size(), 1);
  EXPECT_EQ(read.summary().value(0).tag(), "loss");
  EXPECT_EQ(read.summary().value(0).value_case(), Summary::Value::kTensor);
  EXPECT_EQ(read.summary().value(0).tensor().string_val_size(), 0);
}

// The expected bytes were made with torch.utils.tensorboard.summary.scalar("loss", 0.5) at step 3,
// time 1.
TEST(Event, OfANumberHasTheBytesOfPyTorchsWriter) {
  Event event = EventAt(3, 1);
  AddNumber("loss", 0.5, &event);
  std::istringstream file(RecordOf(event));
  EXPECT_EQ(ReadRecord(file), std::string("\x09\0\0\0\0\0\0\xf0\x3f\x10\x03\x2a\x0d\x0a\x0b"
                                          "\x0a\x04loss\x15\0\0\0\x3f",
                                          26));
}

}  // namespace
}  // namespace muster::tensorboard
