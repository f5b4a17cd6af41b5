#include "worker/tensorboard/event.h"

#include <gtest/gtest.h>

#include <sstream>

namespace muster::tensorboard {
namespace {

std::string Hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<uint8_t>(byte) >> 4];
    hex += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return hex;
}

// The expected bytes were made with tensorboard.summary.writer.record_writer.
TEST(Record, HasTheBytesOfTensorBoardsWriter) {
  EXPECT_EQ(Hex(Record("abc")), "0300000000000000b099490e6162636e57f121");
  EXPECT_EQ(Hex(Record("")), "000000000000000029039807d8ea82a2");
}

TEST(Record, IsReadBack) {
  std::istringstream file(Record("one") + Record("") + Record(std::string(100000, 'x')));
  EXPECT_EQ(ReadRecord(file), "one");
  EXPECT_EQ(ReadRecord(file), "");
  EXPECT_EQ(ReadRecord(file), std::string(100000, 'x'));
  EXPECT_EQ(ReadRecord(file), std::nullopt);
}

TEST(Record, EndsWhereAFileIsTorn) {
  const std::string record = Record("abc");
  for (size_t size = 0; size < record.size(); ++size) {
    std::istringstream file(record.substr(0, size));
    EXPECT_EQ(ReadRecord(file), std::nullopt) << size;
  }
}

TEST(Record, EndsWhereABitIsWrong) {
  const std::string record = Record("abc");
  for (size_t at = 0; at < record.size(); ++at) {
    std::string damaged = record;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::istringstream file(damaged);
    EXPECT_EQ(ReadRecord(file), std::nullopt) << at;
  }
}

TEST(Record, OfAnAbsurdLengthIsNotRead) {
  std::string length(7, '\xff');
  length += '\x7f';
  const uint32_t crc = MaskedCrc32c(length);
  std::string record = length;
  for (int i = 0; i < 4; ++i) record += static_cast<char>(crc >> (8 * i));
  std::istringstream file(record + "abc");
  EXPECT_EQ(ReadRecord(file), std::nullopt);
}

}  // namespace
}  // namespace muster::tensorboard
