#include "worker/device/peak_flops.h"

#include "gtest/gtest.h"

namespace muster::device {
namespace {

TEST(PeakFlops, IsThatOfTheDataSheet) {
  EXPECT_DOUBLE_EQ(PeakFlopsOf("NVIDIA H100 80GB HBM3", /*half=*/true), 989.4e12);
  EXPECT_DOUBLE_EQ(PeakFlopsOf("NVIDIA H100 80GB HBM3", /*half=*/false), 66.9e12);
  EXPECT_DOUBLE_EQ(PeakFlopsOf("NVIDIA H100 PCIe", true), 756e12);
  EXPECT_DOUBLE_EQ(PeakFlopsOf("NVIDIA H200", true), 989.4e12);
  EXPECT_DOUBLE_EQ(PeakFlopsOf("NVIDIA A100-SXM4-40GB", true), 312e12);
  EXPECT_DOUBLE_EQ(PeakFlopsOf("NVIDIA L40S", true), 362e12);
  EXPECT_DOUBLE_EQ(PeakFlopsOf("NVIDIA L4", true), 121e12);
  EXPECT_DOUBLE_EQ(PeakFlopsOf("Tesla V100-SXM2-16GB", true), 125e12);
}

TEST(PeakFlops, IsNotKnownOfTheCpuAndOfOtherGpus) {
  EXPECT_DOUBLE_EQ(PeakFlopsOf("NVIDIA GeForce GT 710", true), 0);
  EXPECT_EQ(PeakFlopsOf("NVIDIA RTX A4000", true), 0);
  EXPECT_EQ(PeakFlopsOf("NVIDIA RTX A1000", true), 0);
  EXPECT_EQ(PeakFlopsOf("NVIDIA T400", true), 0);
  EXPECT_EQ(PeakFlopsOf(c10::Device(c10::kCPU), true), 0);
}

}  // namespace
}  // namespace muster::device
