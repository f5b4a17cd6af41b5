#include "client/cli/terminal/output.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

TEST(Table, AlignsColumnsByCharacters) {
  Table table({"ID", "STATE"});
  EXPECT_TRUE(table.empty());
  table.Add({"\u00e9-1", "RUNNING"});
  table.Add({"longer-id", ""});
  EXPECT_FALSE(table.empty());
  EXPECT_EQ(table.Text(), "ID         STATE\n\u00e9-1        RUNNING\nlonger-id\n");
}

TEST(Table, ACellCannotLookLikeOthersOrControlTheTerminal) {
  Table table({"ID", "BY"});
  table.Add({"a", "x\nb   y"});
  table.Add({"c\x1b[1A", "z"});
  EXPECT_EQ(table.Text(), "ID        BY\na         x\\nb   y\nc\\x1b[1A  z\n");
}

}  // namespace
}  // namespace muster::cli
