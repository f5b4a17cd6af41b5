// A prediction pass on ranks that are threads. predict_session_test has whole sessions.
#include "worker/train/predict/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/activity/activity.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "nlohmann/json.hpp"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/job/job.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class PredictPassTest : public testing::Test {
 protected:
  static constexpr int kSamples = 20, kClasses = 3;
  static constexpr size_t kRowBytes = kClasses * sizeof(float);

  PredictPassTest() {
    const auto plan = safetensors::Plan({{"inputs", safetensors::DType::kF32, {kSamples, 4}}}, {});
    std::string file = plan->prefix;
    for (int i = 0; i < 4 * kSamples; ++i) {
      const float value = static_cast<float>(i % 7) - 3;
      file.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    EXPECT_TRUE(files::WriteAtomically(folder_.Path("rows"), file).ok());
  }

  struct Rank {
    absl::StatusOr<PredictionEnd> end = absl::UnknownError("did not run");
    int asked = 0;          // how often `interrupted` was called
    uint64_t activity = 0;  // batches and blocks
  };
  // Runs a pass with two samples per batch. The `interrupt`th call of `interrupted` ends the pass.
  // `writes`: the calls of `write` that succeed.
  std::vector<Rank> Run(int world_size, int interrupt = 1000, int writes = 1000) {
    std::vector<Rank> ranks(world_size);
    written_.assign(kSamples, 0);
    RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator&,
                             comm::Communicator&, comm::Communicator&) {
      activity::Activity activity;
      const activity::Scope scope(&activity);
      const auto model =
          *models::CreateFromJson("mlp", {{"inputs", 4}, {"classes", 3}}, /*seed=*/1);
      const RankData data =
          *OpenRankData("data.predict", RowFiles{.paths = {folder_.Path("rows")}}, model->Input(),
                        data::Emptiness::kAllowed, control, data::Labels::kIgnored);
      models::ForwardContext context(models::Mode::kTrain, models::MakeGenerator(0));
      Rank& own = ranks[rank];
      own.end = Predict(
          {.source = &data,
           .data = "data.predict",
           .what = PredictStage::What::kLogits,
           .per_rank = 2,
           .step = 0,
           .model = model.get(),
           .context = &context,
           .device = c10::kCPU,
           .communicator = &control,
           .write = [&](uint64_t begin, std::string_view bytes) -> absl::Status {
             if (writes-- <= 0) return absl::ResourceExhaustedError("full");
             EXPECT_EQ(begin % kRowBytes, 0u);
             for (size_t at = 0; at < bytes.size(); at += kRowBytes) {
               ++written_[(begin + at) / kRowBytes];
             }
             return absl::OkStatus();
           },
           .interrupted = [&]() -> absl::StatusOr<bool> { return ++own.asked == interrupt; }});
      own.activity = activity.count();
    });
    return ranks;
  }

  files::TempDir folder_;
  std::vector<int> written_;  // how often each row was written
};

TEST_F(PredictPassTest, EachRowIsWrittenOnce) {
  for (const int world_size : {1, 2, 3, 4}) {
    for (const Rank& rank : Run(world_size)) {
      ASSERT_TRUE(rank.end.ok()) << rank.end.status();
      EXPECT_FALSE(rank.end->interrupted);
      EXPECT_TRUE(rank.end->written.ok());
      const int batches = kSamples / 2;
      const int rounds = (batches + world_size - 1) / world_size;
      EXPECT_EQ(rank.asked, rounds - 1) << "between two rounds";
      EXPECT_GE(rank.activity, static_cast<uint64_t>(batches / world_size));
    }
    EXPECT_THAT(written_, Each(1)) << world_size << " ranks";
  }
}

TEST_F(PredictPassTest, AnInterruptionEndsItBetweenTwoRoundsOnAllRanks) {
  for (const Rank& rank : Run(/*world_size=*/2, /*interrupt=*/2)) {
    ASSERT_TRUE(rank.end.ok()) << rank.end.status();
    EXPECT_TRUE(rank.end->interrupted);
    EXPECT_EQ(rank.asked, 2);
  }
  // The pass has two rounds, of two ranks with two samples each.
  for (int row = 0; row < kSamples; ++row) EXPECT_EQ(written_[row], row < 8) << row;
}

TEST_F(PredictPassTest, AFullDiskEndsItOnAllRanks) {
  const auto ranks = Run(/*world_size=*/3, /*interrupt=*/1000, /*writes=*/1);
  for (const Rank& rank : ranks) {
    ASSERT_TRUE(rank.end.ok()) << rank.end.status();
    EXPECT_FALSE(rank.end->interrupted);
    EXPECT_LE(rank.asked, 1) << "of 3 times";
  }
  EXPECT_EQ(ranks[0].end->written.code(), absl::StatusCode::kResourceExhausted);
}

TEST(PredictionArray, IsOfTheSamplesOfAllRanks) {
  const models::InputSpec tokens = {
      .kind = models::InputSpec::Kind::kTokens, .vocab_size = 29, .context = 8};
  const models::InputSpec rows = {
      .kind = models::InputSpec::Kind::kRows, .row_elements = 4, .classes = 3};
  const RankData data{.dataset = nullptr, .own_sizes = {5, 0, 2}};
  using What = PredictStage::What;
  const PredictionArray logits = PredictionArrayOf(data, tokens, What::kLogits);
  EXPECT_THAT(logits.shape, ElementsAre(7, 8, 29));
  EXPECT_EQ(logits.row_bytes(), 8u * 29 * 4);
  EXPECT_THAT(PredictionArrayOf(data, tokens, What::kClasses).shape, ElementsAre(7, 8));
  EXPECT_THAT(PredictionArrayOf(data, rows, What::kLogits).shape, ElementsAre(7, 3));
  const PredictionArray classes = PredictionArrayOf(data, rows, What::kClasses);
  EXPECT_THAT(classes.shape, ElementsAre(7));
  EXPECT_EQ(classes.row_bytes(), 8u);
}

}  // namespace
}  // namespace muster::train
