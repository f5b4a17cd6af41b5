#include "client/cli/terminal/escaped_stream.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace muster::cli {
namespace {

TEST(EscapedStream, NothingControlsTheTerminalHoweverItIsWritten) {
  const std::string harmful = "a\x1b[2J\u202e\xc2\x9b\xff\r\r\n\xe4\xbf\x9d\n\xe4\xbf";
  const std::string shown = "a\\x1b[2J\\u202e\\u009b\\xff\\x0d\r\n\xe4\xbf\x9d\n\\xe4\\xbf";
  std::ostringstream whole;
  {
    EscapedStream(&whole) << harmful;
  }
  EXPECT_EQ(whole.str(), shown);
  // Writes in two parts, cut at every place, with a flush between the parts.
  for (size_t cut = 0; cut <= harmful.size(); ++cut) {
    std::ostringstream parts;
    {
      EscapedStream out(&parts);
      out << harmful.substr(0, cut) << std::flush << harmful.substr(cut);
    }
    EXPECT_EQ(parts.str(), shown) << cut;
  }
  std::ostringstream bytes;
  {
    EscapedStream out(&bytes);
    for (const char byte : harmful) out.put(byte);
  }
  EXPECT_EQ(bytes.str(), shown);
}

TEST(EscapedStream, OurOwnControlReachesTheTerminal) {
  std::ostringstream terminal;
  EscapedStream(&terminal) << EraseLine << "1\r\x1b[K2";
  EXPECT_EQ(terminal.str(), "\r\x1b[K1\\x0d\\x1b[K2");
}

TEST(EscapedStream, BecomesBadWithTheOther) {
  std::ostringstream terminal;
  EscapedStream out(&terminal);
  out << "a" << std::flush;
  EXPECT_TRUE(out.good());
  terminal.setstate(std::ios::badbit);
  out << "b" << std::flush;
  EXPECT_FALSE(out.good());
}

}  // namespace
}  // namespace muster::cli
