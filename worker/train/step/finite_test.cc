#include "worker/train/step/finite.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/models/spec_from_json.h"
#include "worker/parallel/fsdp/fsdp.h"
#include "worker/parallel/test_model.h"

namespace muster::train {
namespace {

std::unique_ptr<models::Model> Make() {
  auto model = models::CreateFromJson(
      "convnet", {{"inputs", {1, 4, 4}}, {"widths", {2}}, {"blocks", {1}}, {"classes", 2}}, 1);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

TEST(FiniteCheck, PassesFiniteValuesWhoseFloatSumIsNot) {
  const auto model = Make();
  EXPECT_TRUE(FiniteCheck(*model).Check(3, nullptr).ok());
  model->Parameters()[0].tensor.detach().fill_(std::numeric_limits<float>::max());
  EXPECT_TRUE(FiniteCheck(*model).Check(3, nullptr).ok());
}

TEST(FiniteCheck, NamesAnyParameterOrBufferWithOneBadValue) {
  const size_t parameters = Make()->Parameters().size();
  const size_t buffers = Make()->Buffers().size();
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (size_t i = 0; i < parameters + buffers; ++i) {
      const auto model = Make();
      const bool is_buffer = i >= parameters;
      const std::string name =
          is_buffer ? model->Buffers()[i - parameters].name : model->Parameters()[i].name;
      const at::Tensor tensor = is_buffer ? model->Buffers()[i - parameters].tensor
                                          : model->Parameters()[i].tensor.detach();
      if (!tensor.is_floating_point()) continue;
      const FiniteCheck finite(*model);
      tensor.view(-1)[tensor.numel() - 1].fill_(bad);
      const absl::Status status = finite.Check(3, nullptr);
      EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
      const std::string expected = std::string("after step 3 ") +
                                   (is_buffer ? "buffer '" : "parameter '") + name +
                                   "' is not finite";
      EXPECT_EQ(std::string(status.message()).rfind(expected, 0), 0) << status;
      EXPECT_EQ(finite.CheckBuffers(3), is_buffer ? status : absl::OkStatus());
    }
  }
}

TEST(FiniteCheck, ABufferThatIsNotFiniteFromTheStartIsMeantSo) {
  const auto model = Make();
  const std::vector<models::Buffer> buffers = model->Buffers();
  buffers[0].tensor.fill_(-INFINITY);
  const FiniteCheck finite(*model);
  EXPECT_TRUE(finite.Check(3, nullptr).ok());
  EXPECT_TRUE(finite.CheckBuffers(3).ok());
  buffers[1].tensor.fill_(INFINITY);
  EXPECT_FALSE(finite.Check(3, nullptr).ok());
  EXPECT_FALSE(finite.CheckBuffers(3).ok());
}

TEST(FiniteCheck, OfShardsOneRanksBadValueIsToldOnAllRanks) {
  parallel::RunRanks(3, [](comm::Communicator& ranks) {
    const auto model = Make();
    const FiniteCheck finite(*model);
    auto strategy =
        parallel::CreateFsdp(model->Parameters(), model->Buffers(), &model->root(), &ranks, {});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    EXPECT_TRUE(finite.Check(3, strategy->get()).ok());
    if (ranks.rank() == 1) {
      at::Tensor((*strategy)->store().shards()->held.front().tensor).fill_(NAN);
    }
    const absl::Status status = finite.Check(4, strategy->get());
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    EXPECT_EQ(std::string(status.message())
                  .rfind(ranks.rank() == 1 ? "after step 4 parameter '"
                                           : "after step 4 a parameter is not finite on rank 1",
                         0),
              0)
        << status;
  });
}

}  // namespace
}  // namespace muster::train
