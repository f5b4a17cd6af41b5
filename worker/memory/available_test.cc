#include "worker/memory/available.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/files/temp_dir.h"

namespace muster::memory {
namespace {

class AvailableTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = dir_.Path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  uint64_t Available() const { return AvailableBytes(dir_.Path("proc"), dir_.Path("cgroup")); }

  files::TempDir dir_;
};

TEST_F(AvailableTest, ThisMachineHasSome) {
  EXPECT_GT(AvailableBytes(), 0u);
  EXPECT_LT(AvailableBytes(), UINT64_MAX);
}

TEST_F(AvailableTest, WithoutAnyFileItIsUnknown) { EXPECT_EQ(Available(), UINT64_MAX); }

TEST_F(AvailableTest, TheTightestGroupCounts) {
  Write("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:    1000 kB\nSwap: 1 kB\n");
  EXPECT_EQ(Available(), 1024'000u);
  Write("proc/self/cgroup", "1:cpu:/other\n0::/jobs/one\n");
  Write("cgroup/jobs/one/memory.max", "max\n");
  Write("cgroup/jobs/one/memory.current", "700000\n");
  EXPECT_EQ(Available(), 1024'000u);
  Write("cgroup/jobs/memory.max", "900000\n");
  Write("cgroup/jobs/memory.current", "800000\n");
  EXPECT_EQ(Available(), 100'000u);
  Write("cgroup/jobs/memory.stat", "anon 5\ninactive_file 300000\nactive_file 7\n");
  EXPECT_EQ(Available(), 400'000u);
  Write("cgroup/jobs/memory.max", "100\n");
  EXPECT_EQ(Available(), 0u);
}

}  // namespace
}  // namespace muster::memory
