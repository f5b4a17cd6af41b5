// Sessions whose saves and exports fail, find a file of another job, or wait for the coordinator's
// permission.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/exports/signature.h"
#include "common/exports/target.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/session/session.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kIncarnation[] = "0a1b2c3d-4e5f-4a6b-8c9d-0e1f2a3b4c5d";

// Takes the reports of rank 0, and changes files at chosen moments.
class InMemoryCoordinator : public CommandSource,
                            public EventSink,
                            public ExportGate,
                            public LeaseHolder {
 public:
  int64_t Newest() const override { return 0; }
  Command Get(int64_t) const override { return {}; }
  void Report(const Event& event) override {
    std::lock_guard lock(mutex_);
    if (const auto* metrics = std::get_if<v1::StepMetrics>(&event)) {
      if (metrics->step() == 1 && !metrics->has_validation() && on_first_step) on_first_step();
    } else if (const auto* written = std::get_if<CheckpointWritten>(&event)) {
      checkpoints.push_back(written->path);
    } else if (const auto* failed = std::get_if<CheckpointFailed>(&event)) {
      failures.push_back(*failed);
    } else if (const auto* ready = std::get_if<ExportReady>(&event)) {
      readies.push_back(*ready);
    } else if (const auto* exported = std::get_if<Exported>(&event)) {
      exports.push_back(exported->path);
    }
  }
  void Progress(int64_t step, const char*, const char* doing) override {
    if (step == lease_ends_in_save_of && std::string(doing) == "saving a checkpoint")
      lease_over = true;
  }
  absl::Status StillMine() const override {
    return lease_over ? absl::UnavailableError("the lease is over") : absl::OkStatus();
  }
  bool WaitForGrant(const std::string&, absl::Duration) override { return on_ask(++asked); }
  absl::Duration grant_timeout() const override { return absl::Seconds(3); }

  std::function<void()> on_first_step;
  std::function<bool(int times)> on_ask = [](int) { return true; };
  int asked = 0;
  int64_t lease_ends_in_save_of = -1;
  std::atomic<bool> lease_over = false;
  std::vector<std::string> checkpoints;
  std::vector<CheckpointFailed> failures;
  std::vector<ExportReady> readies;
  std::vector<std::string> exports;

 private:
  std::mutex mutex_;
};

class SaveSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream file(Path("train.bin"), std::ios::binary);
    for (uint16_t i = 0; i < 400; ++i) {
      const uint16_t token = i % 29;
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
  }
  std::string Path(const std::string& name) const { return dir_.Path(name); }

  Job SmallJob() const {
    Job job;
    job.seed = 7;
    *job.spec.mutable_model() = models::SpecFromText(
        "gpt2",
        R"({"vocab_size": 29, "context": 8, "layers": 1, "heads": 1, "width": 8, "dropout": 0})");
    job.data.train = TokenFiles{{Path("train.bin")}};
    job.strategy = strategy_;
    job.optimizer = OptimizerConfig{1e-2, optim::AdamWOptions{}};
    job.batch = {.per_rank = 1, .accumulate = 1};
    job.stages = {FitStage{4, 0}};
    job.checkpoint = CheckpointConfig{Path("ckpt"), 2};
    job.weights_export = ExportConfig{.path = Path("out/model.safetensors"), .job_name = "n"};
    return job;
  }

  std::vector<absl::StatusOr<SessionEnd>> Run(const Job& job, int64_t generation = 1,
                                              int world_size = 2) {
    std::vector<absl::StatusOr<SessionEnd>> ends(world_size, absl::UnknownError("did not run"));
    RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                             comm::Communicator& parameters, comm::Communicator& files) {
      const SessionParts parts{.control = &control,
                               .gradients = &data,
                               .parameters = &parameters,
                               .files = &files,
                               .commands = &coordinator_,
                               .events = &coordinator_,
                               .checkpoints = {.recorded = recorded_},
                               .export_gate = gated_ && rank == 0 ? &coordinator_ : nullptr,
                               .save_retry = absl::ZeroDuration(),
                               .lease = rank == 0 ? &coordinator_ : nullptr};
      auto session =
          Session::Create({"job", "instance", generation, rank, kIncarnation}, job, parts);
      ends[rank] = session.ok() ? (*session)->Run() : session.status();
    });
    return ends;
  }

  // Puts a file in the place of `folder`, so that nothing can be written there.
  void Obstruct(const std::string& folder) {
    fs::rename(folder, folder + "-away");
    ASSERT_TRUE(files::WriteAtomically(folder, "in the way").ok());
  }
  std::string Temporary(int64_t generation = 1) {
    return exports::TemporaryPath(Path("out/model.safetensors"), "job", generation, kIncarnation);
  }
  std::string WriterOf(const std::string& path) {
    const auto file = safetensors::File::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->header().metadata.at(exports::kJobNameKey) : "";
  }

  files::TempDir dir_;
  StrategyConfig strategy_ = parallel::DdpOptions{.bucket_bytes = 4096};
  bool gated_ = false;
  std::vector<std::string> recorded_;
  InMemoryCoordinator coordinator_;
};

TEST_F(SaveSessionTest, ALastSaveThatFailsIsTriedAgain) {
  // The link points to itself, so the first attempt fails. Like every failed attempt, it removes
  // its leftovers, here the link.
  coordinator_.on_first_step = [&] {
    fs::create_symlink("step-4-g1.tmp", Path("ckpt/job/step-4-g1.tmp"));
  };
  const auto ends = Run(SmallJob());
  ASSERT_TRUE(ends[0].ok()) << ends[0].status();
  EXPECT_THAT(coordinator_.failures, IsEmpty()) << "the second time counts";
  EXPECT_THAT(coordinator_.checkpoints, SizeIs(2));
}

TEST_F(SaveSessionTest, WithoutItsLastCheckpointEveryRankFailsForGoodAndTheWeightsAreKept) {
  coordinator_.on_first_step = [&] { Obstruct(Path("ckpt/job")); };
  const auto ends = Run(SmallJob());
  for (const auto& end : ends) {
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(CauseOf(end.status()), Cause::kFinalSaveFailed) << end.status();
    EXPECT_EQ(Classify(end.status(), Phase::kRun), FailureKind::kPermanent);
    EXPECT_THAT(Message(end.status()), HasSubstr("the checkpoint at the end of training failed"));
  }
  ASSERT_THAT(coordinator_.failures, SizeIs(2)) << "one report for each save";
  EXPECT_EQ(coordinator_.failures[0].step, 2);
  EXPECT_EQ(coordinator_.failures[1].step, 4);
  EXPECT_TRUE(fs::exists(Path("out/model.safetensors")));
}

TEST_F(SaveSessionTest, ASaveThatFailsOnTheWayDoesNotEndTheJob) {
  Job job = SmallJob();
  job.stages = {FitStage{2, 0}, FitStage{2, 0}};
  coordinator_.on_first_step = [&] {
    ASSERT_TRUE(files::WriteAtomically(Path("ckpt/job/step-2-g1.tmp"), "x").ok());
  };
  const auto ends = Run(job);
  ASSERT_TRUE(ends[0].ok()) << ends[0].status();
  EXPECT_THAT(coordinator_.failures, SizeIs(1));
}

TEST_F(SaveSessionTest, AnExportSaysWhoseItIsAndLeavesNoTemporaryFile) {
  const auto ends = Run(SmallJob());
  ASSERT_TRUE(ends[0].ok()) << ends[0].status();
  const auto file = safetensors::File::Open(Path("out/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().metadata, exports::MetadataOf("n", "job"));
  EXPECT_FALSE(fs::exists(Temporary()));
}

TEST_F(SaveSessionTest, AnExportThatCannotBeWrittenFailsEveryRankForGood) {
  for (const StrategyConfig& strategy : {StrategyConfig(parallel::DdpOptions{.bucket_bytes = 4096}),
                                         StrategyConfig(parallel::FsdpOptions{})}) {
    strategy_ = strategy;
    fs::remove_all(Path("out"));
    fs::remove_all(Path("out-away"));
    fs::remove_all(Path("ckpt"));
    coordinator_.on_first_step = [&] { Obstruct(Path("out")); };
    for (const auto& end : Run(SmallJob())) {
      ASSERT_FALSE(end.ok());
      EXPECT_EQ(CauseOf(end.status()), Cause::kFinalSaveFailed) << end.status();
      EXPECT_THAT(Message(end.status()), HasSubstr("export.path"));
    }
    EXPECT_THAT(coordinator_.exports, IsEmpty());
  }
}

TEST_F(SaveSessionTest, AnExportTakesItsPlaceOnlyAfterItIsGranted) {
  gated_ = true;
  coordinator_.on_ask = [&](int times) {
    EXPECT_TRUE(fs::exists(Temporary())) << "it is whole before anybody is asked";
    EXPECT_FALSE(fs::exists(Path("out/model.safetensors")));
    return times == 2;
  };
  const auto ends = Run(SmallJob());
  ASSERT_TRUE(ends[0].ok()) << ends[0].status();
  EXPECT_EQ(coordinator_.asked, 2);
  ASSERT_THAT(coordinator_.readies, SizeIs(1));
  EXPECT_EQ(coordinator_.readies[0].temporary, Temporary());
  EXPECT_EQ(coordinator_.readies[0].path, Path("out/model.safetensors"));
  EXPECT_THAT(coordinator_.exports, SizeIs(1));
  EXPECT_EQ(WriterOf(Path("out/model.safetensors")), "n");
}

TEST_F(SaveSessionTest, AnExportThatIsNeverGrantedStaysWhereItIsAndIsNamed) {
  gated_ = true;
  coordinator_.on_ask = [](int) { return false; };
  for (const auto& end : Run(SmallJob())) {
    EXPECT_EQ(CauseOf(end.status()), Cause::kFinalSaveFailed) << end.status();
    EXPECT_THAT(Message(end.status()), HasSubstr("the weights are in " + Temporary()));
  }
  EXPECT_EQ(coordinator_.asked, 3);
  EXPECT_EQ(WriterOf(Temporary()), "n");
  EXPECT_FALSE(fs::exists(Path("out/model.safetensors")));
}

// The process ends itself. The next generation does the remaining work of the job.
TEST_F(SaveSessionTest, ALeaseThatEndsInTheLastSaveIsNoSaveThatFailed) {
  coordinator_.lease_ends_in_save_of = 4;
  for (const auto& end : Run(SmallJob())) {
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(CauseOf(end.status()), Cause::kNone) << end.status();
    EXPECT_EQ(Classify(end.status(), Phase::kRun), FailureKind::kConsequence) << end.status();
  }
  EXPECT_THAT(coordinator_.failures, IsEmpty());
}

TEST_F(SaveSessionTest, ALeaseThatEndsBeforeAnExportIsPlacedIsNoExportThatFailed) {
  gated_ = true;
  coordinator_.on_ask = [&](int) { return coordinator_.lease_over = true; };
  for (const auto& end : Run(SmallJob())) {
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(CauseOf(end.status()), Cause::kNone) << end.status();
    EXPECT_EQ(Classify(end.status(), Phase::kRun), FailureKind::kConsequence) << end.status();
  }
  EXPECT_FALSE(fs::exists(Path("out/model.safetensors")));
}

TEST_F(SaveSessionTest, DataThatIsGoneIsTheNodesFaultWhereTheJobCouldReadItBefore) {
  fs::rename(Path("train.bin"), Path("away"));
  for (const auto& end : Run(SmallJob())) {
    EXPECT_EQ(Classify(end.status(), Phase::kCreate), FailureKind::kPermanent) << end.status();
  }
  fs::rename(Path("away"), Path("train.bin"));
  Job job = SmallJob();
  job.weights_export.reset();
  for (const auto& end : Run(job)) ASSERT_TRUE(end.ok()) << end.status();
  recorded_ = coordinator_.checkpoints;
  fs::rename(Path("train.bin"), Path("away"));
  for (const auto& end : Run(job, /*generation=*/2)) {
    EXPECT_EQ(CauseOf(end.status()), Cause::kNodeFault) << end.status();
    EXPECT_EQ(Classify(end.status(), Phase::kCreate), FailureKind::kTransient) << end.status();
  }
}

TEST_F(SaveSessionTest, AFileOfSomebodyElseIsRefusedBeforeTraining) {
  ASSERT_TRUE(files::CreateDirectories(Path("out")).ok());
  ASSERT_TRUE(files::WriteAtomically(Path("out/model.safetensors"), "theirs").ok());
  bool trained = false;
  coordinator_.on_first_step = [&] { trained = true; };
  const auto refused = Run(SmallJob());
  EXPECT_EQ(Classify(refused[0].status(), Phase::kCreate), FailureKind::kPermanent);
  EXPECT_THAT(Message(refused[0].status()), HasSubstr("export.path"));
  EXPECT_FALSE(trained);
  EXPECT_EQ(*files::ReadFile(Path("out/model.safetensors")), "theirs");
  Job job = SmallJob();
  job.weights_export->overwrite = true;
  EXPECT_TRUE(Run(job)[0].ok());
  EXPECT_EQ(WriterOf(Path("out/model.safetensors")), "n");
}

TEST_F(SaveSessionTest, AFileThatCameDuringTheTrainingIsNotReplaced) {
  coordinator_.on_first_step = [&] {
    ASSERT_TRUE(files::WriteAtomically(Path("out/model.safetensors"), "theirs").ok());
  };
  const auto ends = Run(SmallJob());
  EXPECT_EQ(CauseOf(ends[0].status()), Cause::kFinalSaveFailed) << ends[0].status();
  EXPECT_THAT(Message(ends[0].status()), HasSubstr("the weights are in " + Temporary()));
  EXPECT_EQ(*files::ReadFile(Path("out/model.safetensors")), "theirs");
  EXPECT_EQ(WriterOf(Temporary()), "n");
}

TEST_F(SaveSessionTest, WeightsThatAnOlderGenerationLeftAreRemovedOnceThereAreOthers) {
  ASSERT_TRUE(files::CreateDirectories(Path("out")).ok());
  ASSERT_TRUE(files::WriteAtomically(Temporary(1), "half").ok());
  ASSERT_TRUE(files::WriteAtomically(Temporary(3), "newer").ok());
  Job job = SmallJob();
  coordinator_.on_first_step = [&] { EXPECT_TRUE(fs::exists(Temporary(1))); };
  const auto ends = Run(job, /*generation=*/2);
  ASSERT_TRUE(ends[0].ok()) << ends[0].status();
  EXPECT_FALSE(fs::exists(Temporary(1)));
  EXPECT_TRUE(fs::exists(Temporary(3)));
}

}  // namespace
}  // namespace muster::train
