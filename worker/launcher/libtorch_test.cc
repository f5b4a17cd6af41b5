#include "worker/launcher/libtorch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/status/status.h"

namespace muster::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A folder in which programs are installed in "muster/bin".
class FindLibTorchTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& path) { return files::JoinPath(folder_.path(), path); }

  void Write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(Path(path)).parent_path());
    std::ofstream(Path(path)) << content;
  }

  void MakeTorch(const std::string& path, const std::string& version) {
    Write(path + "/lib/libtorch_cpu.so", "");
    Write(path + "/version.py", "debug = False\n__version__ = '" + version + "'\n");
  }

  absl::StatusOr<LibTorch> Find(const std::string& libtorch = "",
                                const std::string& of_python = "") {
    return FindLibTorch({.version = "2.13",
                         .programs = Path("muster/bin"),
                         .libtorch = libtorch,
                         .ask_python = [of_python] { return of_python; }});
  }

  files::TempDir folder_;
};

TEST_F(FindLibTorchTest, TheOneBesideThePackageIsTaken) {
  MakeTorch("torch", "2.13.0+cpu");
  const auto found = Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->folder, Path("torch"));
  EXPECT_FALSE(found->cuda);
}

TEST_F(FindLibTorchTest, TheOneInTheInstalledFolderComesFirst) {
  MakeTorch("torch", "2.13.0+cpu");
  MakeTorch("muster/lib/muster/torch", "2.13.1");
  Write("muster/lib/muster/torch/lib/libtorch_cuda.so", "");
  const auto found = Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->folder, Path("muster/lib/muster/torch"));
  EXPECT_TRUE(found->cuda);
}

TEST_F(FindLibTorchTest, LIBTORCHIsTakenAlone) {
  MakeTorch("torch", "2.13.0");
  Write("own/lib/libtorch_cpu.so", "");
  Write("own/build-version", "2.13.4+cpu\n");
  const auto found = Find(Path("own"));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->folder, Path("own"));

  const auto missing = Find(Path("nothing"));
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(Message(missing.status()), HasSubstr("$LIBTORCH, " + Path("nothing")));
}

TEST_F(FindLibTorchTest, PythonIsAskedLast) {
  MakeTorch("venv/torch", "2.13.0+cpu");
  const auto found = Find("", Path("venv/torch"));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->folder, Path("venv/torch"));
}

TEST_F(FindLibTorchTest, OfAnotherVersionIsRefusedByName) {
  MakeTorch("torch", "2.1.3");
  const auto found = Find();
  EXPECT_TRUE(absl::IsFailedPrecondition(found.status()));
  EXPECT_THAT(Message(found.status()),
              AllOf(HasSubstr("needs LibTorch 2.13"), HasSubstr("found 2.1.3 in " + Path("torch")),
                    HasSubstr("pip install 'torch==2.13.*'")));
}

TEST_F(FindLibTorchTest, WithoutAnyThePlacesAreNamed) {
  const auto found = Find();
  EXPECT_TRUE(absl::IsNotFound(found.status()));
  EXPECT_THAT(Message(found.status()),
              AllOf(HasSubstr(Path("muster/lib/muster/torch")), HasSubstr(Path("torch")),
                    HasSubstr("the packages of python3"), HasSubstr("LIBTORCH")));
}

}  // namespace
}  // namespace muster::launcher
