#include "common/pluginfolders/plugin_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/files/temp_dir.h"
#include "common/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PluginFoldersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"good", "good/deep", "good2", "else"}) {
      std::filesystem::create_directory(folder_.Path(folder));
      std::ofstream(folder_.Path(folder) + "/a.so") << "x";
    }
    std::filesystem::create_symlink(folder_.Path("else/a.so"), folder_.Path("good/out.so"));
    std::filesystem::create_symlink(folder_.Path("good/a.so"), folder_.Path("else/in.so"));
    std::filesystem::create_directory_symlink(folder_.Path("good"), folder_.Path("link"));
  }
  PluginFolders Good() const {
    return ResolvePluginFolders({folder_.Path("link")}, /*own_files=*/false).value();
  }
  std::string Error(const std::string& path, const PluginFolders& allowed) {
    const auto plugin = AllowedPlugin(folder_.Path(path), allowed);
    EXPECT_EQ(plugin.status().code(), absl::StatusCode::kPermissionDenied) << plugin.status();
    return Message(plugin.status());
  }

  files::TempDir folder_;
};

TEST_F(PluginFoldersTest, WhatLiesInAFolderIsAllowedWhateverItIsCalled) {
  const std::string real = std::filesystem::canonical(folder_.Path("good"));
  for (const char* path : {"good/a.so", "link/a.so", "else/in.so", "else/../good/a.so"}) {
    const auto plugin = AllowedPlugin(folder_.Path(path), Good());
    ASSERT_TRUE(plugin.ok()) << path << ": " << plugin.status();
    EXPECT_EQ(*plugin, real + "/a.so");
  }
  EXPECT_EQ(*AllowedPlugin(folder_.Path("good/deep/a.so"), Good()), real + "/deep/a.so");
  EXPECT_TRUE(AllowedPlugin(folder_.Path("else/a.so"), {.folders = {"/"}}).ok());
}

TEST_F(PluginFoldersTest, WhatLiesElsewhereIsRefusedWhateverItIsCalled) {
  for (const char* path : {"else/a.so", "good/out.so", "good/../else/a.so", "good2/a.so"}) {
    EXPECT_THAT(Error(path, Good()),
                AllOf(HasSubstr(folder_.Path(path)), HasSubstr("expected a file in "),
                      HasSubstr("/good, found "), HasSubstr("a.so of uid "),
                      HasSubstr("start muster-agent")));
  }
  EXPECT_THAT(Error("good/a.so", {}), HasSubstr("(--plugins), and there is none"));
  EXPECT_EQ(AllowedPlugin(folder_.Path("none"), Good()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(PluginFoldersTest, OwnFilesAreAllowedWhereTheAgentSaysSo) {
  const PluginFolders own{.own_files = true};
  EXPECT_TRUE(AllowedPlugin(folder_.Path("else/a.so"), own).ok());
  chmod(folder_.Path("else/a.so").c_str(), 0666);
  EXPECT_THAT(Error("else/a.so", own), HasSubstr("which everybody can write"));
  if (geteuid() != 0) GTEST_SKIP() << "needs root, who can give a file away";
  chmod(folder_.Path("else/a.so").c_str(), 0644);
  ASSERT_EQ(chown(folder_.Path("else/a.so").c_str(), 12345, 0), 0);
  EXPECT_THAT(Error("else/a.so", own), AllOf(HasSubstr("of the agent's user (uid 0) or of root"),
                                             HasSubstr("of uid 12345")));
}

TEST_F(PluginFoldersTest, AFolderThatIsNoneIsRefused) {
  for (const std::string& path : {folder_.Path("none"), folder_.Path("good/a.so")}) {
    const auto folders = ResolvePluginFolders({path}, false);
    EXPECT_EQ(folders.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(folders.status()), HasSubstr("expected a folder that exists"));
  }
  std::filesystem::create_directory(folder_.Path("a:b"));
  EXPECT_FALSE(ResolvePluginFolders({folder_.Path("a:b")}, false).ok());
}

TEST_F(PluginFoldersTest, AWorkerReadsWhatItsAgentWrote) {
  EXPECT_FALSE(PluginFoldersOfThisProcess().has_value());
  for (const PluginFolders& allowed : {PluginFolders{}, PluginFolders{.folders = {"/a", "/b c"}},
                                       PluginFolders{.own_files = true}}) {
    for (const auto& [name, value] : ToEnvironment(allowed)) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    const auto read = PluginFoldersOfThisProcess();
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->folders, allowed.folders);
    EXPECT_EQ(read->own_files, allowed.own_files);
  }
  unsetenv(kPluginFoldersVariable);
  unsetenv(kOwnPluginsVariable);
}

}  // namespace
}  // namespace muster
