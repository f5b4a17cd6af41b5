#include "worker/agent/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/status/status.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFake[] = "worker/agent/fake_nvml.so";
const Gpu kFirst = {0, "GPU-10000000-aaaa", "NVIDIA Test 80GB", 85899345920};
const Gpu kSecond = {1, "GPU-20000000-aaaa", "NVIDIA Test 80GB", 85899345920};

class Gpus : public ::testing::Test {
 protected:
  ~Gpus() override { unsetenv("MUSTER_FAKE_NVML"); }
  void Say(const char* what) { setenv("MUSTER_FAKE_NVML", what, 1); }
};

TEST_F(Gpus, AreThoseOfTheLibrary) {
  const auto found = FindGpus(kFake);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, ElementsAre(kFirst, kSecond));
}

TEST_F(Gpus, WithoutALibraryOrADriverThereAreNone) {
  EXPECT_THAT(*FindGpus("libmuster-no-such-library.so.1"), IsEmpty());
  Say("no driver");
  const auto found = FindGpus(kFake);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, IsEmpty());
}

TEST_F(Gpus, AGpuThatCannotBeReadIsAnErrorWithTheNameOfTheCall) {
  Say("lost");
  const absl::Status status = FindGpus(kFake).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Message(status), "worker/agent/fake_nvml.so: nvmlDeviceGetHandleByIndex: GPU is lost");
}

TEST_F(Gpus, ALibraryWithoutTheFunctionsIsAnError) {
  const absl::Status status = FindGpus("libm.so.6").status();
  EXPECT_THAT(Message(status), HasSubstr("libm.so.6: it has no function nvml"));
}

TEST(VisibleGpus, AreSelectedByIndexOrByTheBeginningOfTheirUuid) {
  const std::vector<Gpu> all = {kFirst, kSecond};
  EXPECT_THAT(VisibleGpus(all, std::nullopt), ElementsAre(kFirst, kSecond));
  EXPECT_THAT(VisibleGpus(all, "1, 0"), ElementsAre(kSecond, kFirst));
  EXPECT_THAT(VisibleGpus(all, "GPU-2"), ElementsAre(kSecond));
  EXPECT_THAT(VisibleGpus(all, "1,1"), ElementsAre(kSecond));
}

TEST(VisibleGpus, EndBeforeTheFirstEntryThatSelectsNone) {
  const std::vector<Gpu> all = {kFirst, kSecond};
  EXPECT_THAT(VisibleGpus(all, ""), IsEmpty());
  EXPECT_THAT(VisibleGpus(all, "-1"), IsEmpty());
  EXPECT_THAT(VisibleGpus(all, "1,7,0"), ElementsAre(kSecond));
  EXPECT_THAT(VisibleGpus(all, "GPU-3,0"), IsEmpty());
}

}  // namespace
}  // namespace muster::agent
