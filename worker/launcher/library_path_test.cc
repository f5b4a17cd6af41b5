#include "worker/launcher/libtorch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace muster::launcher {
namespace {

constexpr char kPath[] = "LD_LIBRARY_PATH";

std::optional<std::string> Path() {
  const char* value = std::getenv(kPath);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

TEST(LibraryPath, TheFolderComesBeforeThoseOfTheUser) {
  setenv(kPath, "/wrong/torch/lib:/other", 1);
  PutFirst("/right/torch/lib");
  EXPECT_EQ(Path(), "/right/torch/lib:/wrong/torch/lib:/other");
  Restore();
  EXPECT_EQ(Path(), "/wrong/torch/lib:/other");
}

TEST(LibraryPath, WithoutOneBeforeThereIsNoOtherFolder) {
  unsetenv(kPath);
  PutFirst("/right/torch/lib");
  EXPECT_EQ(Path(), "/right/torch/lib") << "an empty entry would be the current folder";
  Restore();
  EXPECT_EQ(Path(), std::nullopt);
}

TEST(LibraryPath, StaysIfNothingWasPutFirst) {
  setenv(kPath, "/own", 1);
  Restore();
  EXPECT_EQ(Path(), "/own");
}

}  // namespace
}  // namespace muster::launcher
