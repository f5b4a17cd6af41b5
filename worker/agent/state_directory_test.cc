#include "worker/agent/identity.h"

#include <gtest/gtest.h>

namespace muster::agent {
namespace {

std::string Default(const std::map<std::string, std::string>& environment,
                    const std::string& with_id = "") {
  return DefaultStateDirectory(
      "gpu/7", "10.0.0.1:7070", environment,
      [&](const std::string& directory) { return !with_id.empty() && directory == with_id; });
}

TEST(DefaultStateDirectory, IsTheUnitsUnderSystemd) {
  EXPECT_EQ(Default({{"STATE_DIRECTORY", "/var/lib/muster"}, {"HOME", "/root"}}),
            "/var/lib/muster/agent-gpu-7-10.0.0.1-7070");
  EXPECT_EQ(Default({{"STATE_DIRECTORY", "/var/lib/one:/var/lib/two"}}),
            "/var/lib/one/agent-gpu-7-10.0.0.1-7070");
}

TEST(DefaultStateDirectory, IsTheUsersOtherwise) {
  EXPECT_EQ(Default({{"XDG_STATE_HOME", "/xdg"}, {"HOME", "/home/u"}}),
            "/xdg/muster/agent-gpu-7-10.0.0.1-7070");
  EXPECT_EQ(Default({{"STATE_DIRECTORY", ""}, {"XDG_STATE_HOME", ""}, {"HOME", "/home/u"}}),
            "/home/u/.local/state/muster/agent-gpu-7-10.0.0.1-7070");
}

TEST(DefaultStateDirectory, IsThereAlsoWithoutAHome) {
  EXPECT_EQ(Default({}), "/var/lib/muster/agent-gpu-7-10.0.0.1-7070");
  EXPECT_EQ(Default({{"HOME", ""}}), "/var/lib/muster/agent-gpu-7-10.0.0.1-7070");
}

TEST(DefaultStateDirectory, AnAgentWithAnIdInItsUsersDirectoryKeepsItUnderSystemd) {
  const std::string users = "/home/u/.local/state/muster/agent-gpu-7-10.0.0.1-7070";
  const std::map<std::string, std::string> environment = {{"STATE_DIRECTORY", "/var/lib/muster"},
                                                          {"HOME", "/home/u"}};
  EXPECT_EQ(Default(environment, users), users);
  EXPECT_EQ(Default(environment, "/elsewhere"), "/var/lib/muster/agent-gpu-7-10.0.0.1-7070");
}

}  // namespace
}  // namespace muster::agent
