#include "worker/launcher/libtorch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/secret/worker_variable.h"

namespace muster::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A fixture with a python3 of its own on PATH, which writes its environment to a file.
class PythonTest : public ::testing::Test {
 protected:
  void MakePython(const std::string& answer) {
    const std::string path = folder_.Path("python3");
    std::ofstream(path) << "#!/bin/sh\nenv > '" << folder_.Path("environment") << "'\n" << answer;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    setenv("PATH", (folder_.path() + ":/usr/bin:/bin").c_str(), 1);
  }

  files::TempDir folder_;
};

TEST_F(PythonTest, TellsTheFolderOfTorch) {
  MakePython("echo '/some where/torch'\necho more\n");
  EXPECT_EQ(TorchOfPython(), "/some where/torch");
}

TEST_F(PythonTest, WithoutTorchThereIsNoFolder) {
  MakePython("echo 'no module' >&2\nexit 1\n");
  EXPECT_EQ(TorchOfPython(), "");
}

TEST_F(PythonTest, DoesNotGetTheSecretOfTheWorker) {
  setenv(secret::kWorkerVariable, "c0ffee", 1);
  MakePython("echo /torch\n");
  EXPECT_EQ(TorchOfPython(), "/torch");
  const auto environment = files::ReadFile(folder_.Path("environment"));
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_THAT(*environment, HasSubstr("PATH="));
  EXPECT_THAT(*environment, Not(HasSubstr("c0ffee")));
  EXPECT_STREQ(std::getenv(secret::kWorkerVariable), "c0ffee") << "the worker needs it";
}

}  // namespace
}  // namespace muster::launcher
