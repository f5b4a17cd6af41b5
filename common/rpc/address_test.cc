#include "common/rpc/address.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "common/files/temp_dir.h"

namespace muster {
namespace {

Environment Given(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  };
}

TEST(Address, EachFormIsReadAndWrittenBack) {
  for (const std::string text :
       {"unix:/run/muster/socket", "127.0.0.1:70", "node-1:0", "[::1]:7"}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(ToString(*address), text);
    EXPECT_EQ(address->local(), text[0] == 'u');
  }
  EXPECT_EQ(ParseAddress("[::1]:7")->host, "::1");
}

TEST(Address, OthersAreRefusedByName) {
  for (const std::string text : {"", ":", "host", "host:", ":70", "host:x", "host:70000", "host:-1",
                                 "::1:70", "[]:7", "unix:", "unix:socket", "host:7 "}) {
    const auto address = ParseAddress(text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(address.status().message().find("'" + text + "'"), std::string::npos) << text;
  }
  EXPECT_TRUE(ParseAddress("unix:/" + std::string(106, 'a')).ok());
  EXPECT_FALSE(ParseAddress("unix:/" + std::string(107, 'a')).ok());
}

TEST(FindCoordinator, ReadsTheStateDirectory) {
  const files::TempDir state = files::TempDir::Short();
  EXPECT_EQ(*FindCoordinator(state.path()), "unix:" + state.Path("socket"));
  EXPECT_EQ(FindCoordinator(state.Path(std::string(120, 'd'))).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(WriteAddress(state.path(), "unix:/a/socket").ok());
  EXPECT_EQ(*FindCoordinator(state.path()), "unix:/a/socket");
  EXPECT_EQ(*FindCoordinator("host:70"), "host:70");
  EXPECT_EQ(FindCoordinator("state").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SocketPath, IsInTheStateDirectoryWhereItFits) {
  EXPECT_EQ(*SocketPath("/state", Given({{"XDG_RUNTIME_DIR", "/run/user/1"}})), "/state/socket");
  const std::string deep = "/" + std::string(120, 'd');
  const auto other = SocketPath(deep, Given({{"XDG_RUNTIME_DIR", "/run/user/1"}}));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->rfind("/run/user/1/muster-", 0), 0u) << *other;
  // Each state directory has its own.
  EXPECT_NE(*other, *SocketPath(deep + "e", Given({{"XDG_RUNTIME_DIR", "/run/user/1"}})));
  for (const std::string& runtime : {std::string(), deep}) {
    EXPECT_EQ(SocketPath(deep, Given({{"XDG_RUNTIME_DIR", runtime}})).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(DefaultStateDirectory, FollowsTheXdgVariables) {
  EXPECT_EQ(DefaultStateDirectory(Given({{"HOME", "/home/a"}})), "/home/a/.local/state/muster");
  EXPECT_EQ(DefaultStateDirectory(Given({{"HOME", "/home/a"}, {"XDG_STATE_HOME", "/s"}})),
            "/s/muster");
  EXPECT_EQ(DefaultStateDirectory(Given({})), "");
}

}  // namespace
}  // namespace muster
