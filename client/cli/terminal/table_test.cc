#include "client/cli/terminal/table.h"

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

}  // namespace
}  // namespace muster::cli
