#include "worker/agent/log_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Feed(LineSplitter& splitter, const std::string& bytes) {
  return splitter.Feed(bytes.data(), bytes.size());
}

TEST(LineSplitter, LinesAreWholeHoweverTheBytesCome) {
  LineSplitter splitter;
  EXPECT_THAT(Feed(splitter, "one\ntw"), ElementsAre("one"));
  EXPECT_THAT(Feed(splitter, "o"), IsEmpty());
  EXPECT_THAT(Feed(splitter, "\n\nthree\r\nfo"), ElementsAre("two", "", "three"));
  EXPECT_THAT(splitter.Finish(), ElementsAre("fo"));
  EXPECT_THAT(splitter.Finish(), IsEmpty());
}

TEST(LineSplitter, AVeryLongLineIsCutAndSaysHowMuch) {
  LineSplitter splitter;
  const std::string half(LineSplitter::kMaxLineBytes / 2, 'x');
  EXPECT_THAT(Feed(splitter, half), IsEmpty());
  EXPECT_THAT(Feed(splitter, half), IsEmpty());
  EXPECT_THAT(Feed(splitter, "12345"), IsEmpty());
  EXPECT_THAT(Feed(splitter, "67\nnext\n"), ElementsAre(half + half + " [7 more bytes]", "next"));
}

TEST(LineSplitter, ACarriageReturnWithinACutLineIsNoEnd) {
  LineSplitter splitter;
  const std::string kept = std::string(LineSplitter::kMaxLineBytes - 1, 'x') + "\r";
  EXPECT_THAT(Feed(splitter, kept + "more\n"), ElementsAre(kept + " [4 more bytes]"));
}

TEST(LineSplitter, LinesAreValidUtf8) {
  LineSplitter splitter;
  EXPECT_THAT(Feed(splitter, "\xff\n"), ElementsAre("\xef\xbf\xbd"));
}

}  // namespace
}  // namespace muster::agent
