// Sessions that begin with a weights file.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/session/session_fixture.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

class WeightsSessionTest : public SessionTest {
 protected:
  void SetUp() override {
    SessionTest::SetUp();
    path_ = folder_ / "model.safetensors";
    Job job = SmallJob();
    job.stages = {FitStage{1, 0}};
    job.weights_export = {.path = path_};
    ASSERT_TRUE(RunSessions(job, 1)->ends[0].ok());
  }

  Job Loading(const StrategyConfig& strategy) const {
    Job job = SmallJob();
    job.strategy = strategy;
    job.spec.mutable_model()->set_weights(path_);
    return job;
  }

  // Overwrites one number of a tensor.
  void Spoil(const std::string& name, int64_t number) {
    uint64_t at = 0;
    {
      const auto file = safetensors::File::Open(path_);
      ASSERT_TRUE(file.ok()) << file.status();
      at = file->header().data_offset + file->Find(name)->begin + number * sizeof(float);
    }
    const float value = std::numeric_limits<float>::infinity();
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  std::string path_;
};

// With fsdp only one rank reads this number.
TEST_F(WeightsSessionTest, AValueThatIsNotFiniteEndsAllRanksWithTheSameError) {
  Spoil("transformer.h.1.mlp.c_fc.weight", 1000);
  const std::string expected =
      path_ +
      ": 'transformer.h.1.mlp.c_fc.weight': expected finite numbers, found inf as number 1000";
  const StrategyConfig strategies[] = {parallel::DdpOptions{}, parallel::ShardedDdpOptions{},
                                       parallel::FsdpOptions{}};
  for (const StrategyConfig& strategy : strategies) {
    for (const bool fits : {true, false}) {
      Job job = Loading(strategy);
      if (!fits) job.stages = {ValidateStage{}};
      const auto run = RunSessions(job, 3);
      const std::string first(run->ends[0].status().message());
      EXPECT_THAT(first, HasSubstr("model.weights: "));
      EXPECT_THAT(first, HasSubstr(expected));
      for (const auto& end : run->ends) {
        EXPECT_EQ(std::string(end.status().message()), first);
        EXPECT_EQ(Classify(end.status(), Phase::kCreate), FailureKind::kPermanent);
      }
    }
  }
}

TEST_F(WeightsSessionTest, AllStrategiesTrainBitwiseFromTheSameValues) {
  const auto losses = RunSessions(Loading(parallel::DdpOptions{}), 2)->coordinator.losses();
  ASSERT_EQ(losses.size(), 12u);
  EXPECT_NE(losses, RunSessions(SmallJob(), 2)->coordinator.losses());
  EXPECT_EQ(RunSessions(Loading(parallel::ShardedDdpOptions{}), 2)->coordinator.losses(), losses);
  EXPECT_EQ(RunSessions(Loading(parallel::FsdpOptions{}), 2)->coordinator.losses(), losses);
}

TEST_F(WeightsSessionTest, OneRankSaysWhatItHasTaken) {
  Job job = SmallJob();
  job.strategy = parallel::FsdpOptions{};
  job.stages = {FitStage{1, 0}};
  v1::WeightsSpec* weights = job.spec.mutable_model()->mutable_weights_from();
  weights->set_file(path_);
  weights->add_take("transformer.h.0.*");
  (*weights->mutable_rename())["transformer.h.0.*"] = "transformer.h.1.*";
  weights->set_missing(v1::WeightsSpec::INITIAL);
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  const auto run = RunSessions(job, 3);
  spdlog::set_default_logger(before);
  ASSERT_TRUE(run->ends[0].ok()) << run->ends[0].status();
  const std::string told = "model.weights: tensors taken: 12 ('transformer.h.0.ln_1.weight', ";
  const std::string text = log.str();
  EXPECT_NE(text.find(told), std::string::npos) << text;
  EXPECT_EQ(text.find(told), text.rfind(told));
  EXPECT_THAT(text, HasSubstr("of these renamed: 12 ('transformer.h.0.ln_1.weight' to "
                              "'transformer.h.1.ln_1.weight', "));
  EXPECT_THAT(text, HasSubstr("; left at their initial values: 16 ('transformer.wte.weight', "));
}

}  // namespace
}  // namespace muster::train
