#include "common/rpc/address.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
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
  // The file is written only if it changes: a full disk has no room.
  const auto written = std::filesystem::last_write_time(state.Path("address"));
  std::filesystem::last_write_time(state.Path("address"), written - std::chrono::hours(1));
  ASSERT_TRUE(WriteAddress(state.path(), "unix:/a/socket").ok());
  EXPECT_EQ(std::filesystem::last_write_time(state.Path("address")),
            written - std::chrono::hours(1));
  ASSERT_TRUE(WriteAddress(state.path(), "unix:/b/socket").ok());
  EXPECT_EQ(*FindCoordinator(state.path()), "unix:/b/socket");
  EXPECT_EQ(*FindCoordinator("host:70"), "host:70");
  EXPECT_EQ(FindCoordinator("state").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SocketPath, IsInTheStateDirectoryWhereItFits) {
  const files::TempDir runtime = files::TempDir::Short();
  const Environment environment = Given({{"XDG_RUNTIME_DIR", runtime.path()}});
  EXPECT_EQ(*SocketPath("/state", environment), "/state/socket");
  const std::string deep = "/" + std::string(120, 'd');
  const auto other = SocketPath(deep, environment);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->rfind(runtime.Path("muster-"), 0), 0u) << *other;
  // Each state directory has its own path.
  EXPECT_NE(*other, *SocketPath(deep + "e", environment));
  for (const std::string& wrong : {std::string(), deep}) {
    EXPECT_EQ(SocketPath(deep, Given({{"XDG_RUNTIME_DIR", wrong}})).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(SocketPath, IsNotWhereOthersCouldListenFirst) {
  const std::string deep = "/" + std::string(120, 'd');
  const files::TempDir runtime = files::TempDir::Short();
  const auto expect_refused = [&](const std::string& directory, const std::string& why) {
    const absl::Status status = SocketPath(deep, Given({{"XDG_RUNTIME_DIR", directory}})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << directory;
    for (const std::string& part : {directory, why, std::string("mode 0700")}) {
      EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
    }
  };
  expect_refused(runtime.Path("none"), "No such file");
  ASSERT_TRUE(WriteAddress(runtime.path(), "unix:/a/socket").ok());
  expect_refused(runtime.Path("address"), "no directory");
  for (const mode_t mode : {0770, 0702, 01777}) {
    ASSERT_EQ(chmod(runtime.path().c_str(), mode), 0);
    expect_refused(runtime.path(), "others may write it");
  }
  ASSERT_EQ(chmod(runtime.path().c_str(), 0755), 0);
  EXPECT_TRUE(SocketPath(deep, Given({{"XDG_RUNTIME_DIR", runtime.path()}})).ok());
  if (geteuid() != 0) return;  // only root can give a directory away
  ASSERT_EQ(chown(runtime.path().c_str(), 65534, 65534), 0);
  expect_refused(runtime.path(), "belongs to the user 65534");
}

TEST(SocketFits, CountsTheBytesOfTheWholePath) {
  EXPECT_TRUE(SocketFits("/" + std::string(99, 'd')));
  EXPECT_FALSE(SocketFits("/" + std::string(100, 'd')));
  EXPECT_FALSE(SocketFits(std::string(99, 'd'))) << "relative to the current directory";
}

TEST(DefaultStateDirectory, FollowsTheXdgVariables) {
  EXPECT_EQ(DefaultStateDirectory(Given({{"HOME", "/home/a"}})), "/home/a/.local/state/muster");
  EXPECT_EQ(DefaultStateDirectory(Given({{"HOME", "/home/a"}, {"XDG_STATE_HOME", "/s"}})),
            "/s/muster");
  EXPECT_EQ(DefaultStateDirectory(Given({})), "");
}

}  // namespace
}  // namespace muster
