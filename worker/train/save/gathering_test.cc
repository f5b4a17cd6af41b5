#include "worker/train/save/gathering.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "ATen/ops/full.h"
#include "absl/synchronization/notification.h"
#include "common/exports/target.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

constexpr int64_t kElements = 6;

class InMemoryCoordinator : public EventSink, public LeaseHolder {
 public:
  void Report(const Event& event) override { events.push_back(event); }
  void Progress(int64_t, const char*, const char* doing) override {
    if (waiting && std::strcmp(doing, "waiting for files that are being written") == 0) waiting();
  }
  std::function<void()> waiting;
  absl::Status StillMine() const override {
    if (before_name) before_name();
    return absl::OkStatus();
  }
  std::function<void()> before_name;
  std::vector<Event> events;  // used by the background's thread, while a task runs
};

// The real disk, with an action before each write.
class WatchedDisk : public checkpoint::CountingDisk {
 public:
  using CountingDisk::CountingDisk;
  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override {
    if (before_write) before_write();
    return CountingDisk::Write(fd, data, size, path);
  }
  std::function<void()> before_write;
};

// The only rank of a job. Its optimizer has one moment.
class GatheringTest : public testing::Test, public StateSource {
 protected:
  absl::Status AwaitState() override { return weights_; }
  absl::Status AwaitWeights() override { return weights_; }
  checkpoint::State State() const override {
    return checkpoint::Replicated(
        {{"param", "w", at::full({kElements}, 9.0f)}, {"exp_avg", "w", moment_}}, 1);
  }
  absl::StatusOr<checkpoint::ModelRecords> Records(const checkpoint::State&) const override {
    checkpoint::ModelRecords records;
    records.optimizer = {.kind = "adam", .groups = {{{"lr", {0.1}}}}};
    records.parameters = {{.name = "w",
                           .shape = {kElements},
                           .dtype = "F32",
                           .trainable = true,
                           .ever_trained = true}};
    return records;
  }

  void On(const std::function<void(Gathering&)>& body) {
    RunRanks(1, [&](int, comm::Communicator&, comm::Communicator&, comm::Communicator&,
                    comm::Communicator& files) {
      const SessionReports reports(0, &coordinator_, &session_state_);
      const optim::Schedule rates;
      Background background(&files, &reports);
      background_ = &background;
      Gathering gathering(
          {.identity = {"job", "instance", 1, 0, "0a1b2c3d-4e5f-4a6b-8c9d-0e1f2a3b4c5d"},
           .inputs = inputs_,
           .lease = &coordinator_,
           .learning_rates = &rates,
           .session_state = &session_state_,
           .reports = &reports,
           .communicator = &files,
           .background = &background,
           .writing = &writing_,
           .disk = &disk_,
           .source = this});
      body(gathering);
    });
  }
  absl::Status Gather(Gathering& gathering, bool hold) {
    return gathering.Gather(File({.hold = hold}), /*command=*/4,
                            [this](const auto& gathered) { told_ = gathered; });
  }
  struct Asked {
    bool overwrite = false;
    bool hold = false;
    bool download = false;
  };
  // Returns the output of a command: the file `state`, or the folder `model`.
  v1::OptimizerStateFile File(const Asked& asked) const {
    v1::OptimizerStateFile file;
    file.set_path(folder_.Path("state"));
    file.set_format(v1::OptimizerStateFile::SAFETENSORS);
    file.set_overwrite(asked.overwrite);
    file.set_hold(asked.hold);
    file.set_download(asked.download);
    return file;
  }
  v1::ModelFolder Folder(const Asked& asked) const {
    v1::ModelFolder folder;
    folder.set_path(folder_.Path("model"));
    folder.set_overwrite(asked.overwrite);
    folder.set_hold(asked.hold);
    return folder;
  }
  // Returns the first element of the moment in the file.
  float InFile() const {
    const auto file = safetensors::File::Open(folder_.Path("state"));
    if (!file.ok()) return -1;
    const auto bytes = files::ReadFile(folder_.Path("state"));
    float value = 0;
    std::memcpy(&value, bytes->data() + bytes->size() - kElements * sizeof(float), sizeof(float));
    return value;
  }
  bool NothingIsLeft() const { return std::filesystem::is_empty(folder_.path()); }

  files::TempDir folder_;
  exports::Inputs inputs_;
  InMemoryCoordinator coordinator_;
  SessionState session_state_{.step = 3};
  absl::Status weights_;
  checkpoint::Writing writing_;
  WatchedDisk disk_{&writing_};
  at::Tensor moment_ = at::full({kElements}, 1.0f);
  absl::StatusOr<OptimizerStateGathered> told_ = absl::UnknownError("nothing was told");
  Background* background_ = nullptr;
};

TEST_F(GatheringTest, AFileHasTheStateOfItsStepAlthoughTrainingContinues) {
  absl::Notification changed;
  coordinator_.before_name = [&] {
    changed.WaitForNotification();
    EXPECT_EQ(writing_.Read(), (checkpoint::Writing::Now{4, 4 * kElements, 4 * kElements}));
  };
  On([&](Gathering& gathering) {
    ASSERT_TRUE(Gather(gathering, /*hold=*/false).ok());
    moment_.fill_(2);
    ++session_state_.step;
    changed.Notify();
    ASSERT_TRUE(background_->Await().ok());
  });
  ASSERT_TRUE(told_.ok()) << told_.status();
  EXPECT_EQ(told_->step, 3);
  EXPECT_EQ(told_->bytes, std::filesystem::file_size(folder_.Path("state")));
  EXPECT_GT(told_->stall_seconds, 0);
  EXPECT_GE(told_->seconds, told_->stall_seconds);
  EXPECT_EQ(InFile(), 1.0f);
  EXPECT_EQ(writing_.Read(), checkpoint::Writing::Now());
}

TEST_F(GatheringTest, WithHoldTheFileIsThereWhenTrainingContinues) {
  On([&](Gathering& gathering) {
    ASSERT_TRUE(Gather(gathering, /*hold=*/true).ok());
    ASSERT_TRUE(told_.ok()) << told_.status();
    EXPECT_EQ(told_->stall_seconds, told_->seconds);
  });
  EXPECT_EQ(InFile(), 1.0f);
}

TEST_F(GatheringTest, AFileForAClientNeedsAFolder) {
  On([&](Gathering& gathering) {
    v1::OptimizerStateFile file = File({.hold = true});
    file.clear_path();
    ASSERT_TRUE(gathering
                    .Gather(file, /*command=*/4,
                            [this](const auto& told) { told_ = told; })
                    .ok());
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(told_.status())) << told_.status();
  EXPECT_NE(told_.status().message().find("has no folder"), absl::string_view::npos);
}

// The first generation was killed after its files had their names, but before its report.
TEST_F(GatheringTest, ACommandThatIsCarriedOutAgainReplacesWhatItWrote) {
  absl::StatusOr<ModelConsolidated> model = absl::UnknownError("nothing was told");
  const auto write = [&](Gathering& gathering, int64_t command) {
    ASSERT_TRUE(gathering
                    .Gather(File({.hold = true}), command,
                            [this](const auto& told) { told_ = told; })
                    .ok());
    ASSERT_TRUE(gathering
                    .Consolidate(Folder({.hold = true}), command,
                                 [&](const auto& told) { model = told; })
                    .ok());
  };
  On([&](Gathering& gathering) {
    write(gathering, /*command=*/4);
    ASSERT_TRUE(told_.ok() && model.ok()) << told_.status() << model.status();
    moment_.fill_(2);
    write(gathering, /*command=*/4);
    EXPECT_TRUE(told_.ok() && model.ok()) << told_.status() << model.status();
    EXPECT_EQ(InFile(), 2.0f);
    write(gathering, /*command=*/5);
    EXPECT_TRUE(absl::IsAlreadyExists(told_.status())) << told_.status();
    EXPECT_TRUE(absl::IsAlreadyExists(model.status())) << model.status();
    ASSERT_TRUE(files::WriteAtomically(folder_.Path("model/config.json"), "mine").ok());
    ASSERT_TRUE(files::WriteAtomically(folder_.Path("state"), "mine").ok());
    write(gathering, /*command=*/4);
    EXPECT_TRUE(absl::IsAlreadyExists(told_.status())) << "it was changed: " << told_.status();
    EXPECT_TRUE(absl::IsAlreadyExists(model.status())) << "it was changed: " << model.status();
  });
}

TEST_F(GatheringTest, OnlyItsOwnerReadsAFileForAClient) {
  const mode_t before = umask(0);
  On([&](Gathering& gathering) {
    for (const bool for_client : {false, true}) {
      const std::string path = folder_.Path(for_client ? "downloads" : "output");
      v1::OptimizerStateFile file = File({.hold = true, .download = for_client});
      file.set_path(path);
      ASSERT_TRUE(gathering
                      .Gather(file,
                              /*command=*/4, [this](const auto& told) { told_ = told; })
                      .ok());
      ASSERT_TRUE(told_.ok()) << told_.status();
      struct stat info = {};
      ASSERT_EQ(stat(path.c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, for_client ? 0600u : 0644u);
    }
  });
  umask(before);
}

TEST_F(GatheringTest, ItIsCancelledUntilItsFileIsComplete) {
  absl::Notification cancelling;
  coordinator_.before_name = [&] { cancelling.WaitForNotification(); };
  On([&](Gathering& gathering) {
    EXPECT_FALSE(*gathering.Cancel(4)) << "it was not begun";
    ASSERT_TRUE(Gather(gathering, /*hold=*/false).ok());
    EXPECT_FALSE(*gathering.Cancel(3)) << "another command";
    // The file is complete, so the cancel comes too late.
    cancelling.Notify();
    ASSERT_TRUE(background_->Await().ok());
    EXPECT_FALSE(*gathering.Cancel(4));
    ASSERT_TRUE(told_.ok()) << told_.status();
    std::filesystem::remove(folder_.Path("state"));
  });
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(GatheringTest, ACancelWhileItsFileIsWrittenIsToldAndLeavesNothing) {
  absl::Notification writing, cancelling;
  disk_.before_write = [&] {
    if (!writing.HasBeenNotified()) writing.Notify();
    cancelling.WaitForNotification();
  };
  coordinator_.waiting = [&] { cancelling.Notify(); };
  On([&](Gathering& gathering) {
    ASSERT_TRUE(Gather(gathering, /*hold=*/false).ok());
    writing.WaitForNotification();
    EXPECT_TRUE(*gathering.Cancel(4));
  });
  EXPECT_TRUE(absl::IsCancelled(told_.status())) << told_.status();
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(GatheringTest, WhatTheJobReadsIsNeverReplaced) {
  ASSERT_TRUE(files::WriteAtomically(folder_.Path("state"), "data").ok());
  ASSERT_TRUE(files::CreateDirectories(folder_.Path("model")).ok());
  ASSERT_TRUE(files::WriteAtomically(folder_.Path("model/model.safetensors"), "weights").ok());
  inputs_ = {{"data.train.tokens.path[0]", folder_.Path("state")},
             {"model.weights", folder_.Path("model/model.safetensors")}};
  absl::StatusOr<ModelConsolidated> model = absl::UnknownError("nothing was told");
  On([&](Gathering& gathering) {
    ASSERT_TRUE(gathering
                    .Gather(File({.overwrite = true}),
                            /*command=*/4, [this](const auto& gathered) { told_ = gathered; })
                    .ok());
    ASSERT_TRUE(gathering
                    .Consolidate(Folder({.overwrite = true}),
                                 /*command=*/5, [&](const auto& told) { model = told; })
                    .ok());
    ASSERT_TRUE(background_->Await().ok());
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(told_.status())) << told_.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(model.status())) << model.status();
  EXPECT_EQ(*files::ReadFile(folder_.Path("state")), "data");
  EXPECT_EQ(*files::ReadFile(folder_.Path("model/model.safetensors")), "weights");
}

TEST_F(GatheringTest, AModelHasTheWeightsOfItsStepAndItsFolderIsComplete) {
  absl::StatusOr<ModelConsolidated> told = absl::UnknownError("nothing was told");
  On([&](Gathering& gathering) {
    ASSERT_TRUE(gathering
                    .Consolidate(Folder({}), /*command=*/5,
                                 [&](const auto& model) { told = model; })
                    .ok());
    ++session_state_.step;
    ASSERT_TRUE(background_->Await().ok());
  });
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->step, 3);
  EXPECT_EQ(told->files, std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(told->bytes, std::filesystem::file_size(folder_.Path("model/model.safetensors")));
  EXPECT_EQ(told->notes.size(), 1) << "this model has no config.json";
  const auto file = safetensors::File::Open(folder_.Path("model/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_NE(file->Find("w"), nullptr);
  EXPECT_EQ(file->header().entries.size(), 1) << "the optimizer's state is none of it";
  float value = 0;
  std::memcpy(&value, file->data(*file->Find("w")), sizeof(value));
  EXPECT_EQ(value, 9.0f);
}

TEST_F(GatheringTest, WhatIsLeftToTheNextGenerationIsNotToldAndLeavesNothing) {
  absl::Notification writing;
  coordinator_.before_name = [&] { writing.WaitForNotification(); };
  On([&](Gathering& gathering) {
    ASSERT_TRUE(Gather(gathering, /*hold=*/false).ok());
    writing.Notify();
    ASSERT_TRUE(gathering.LeaveToNextGeneration().ok());
    ASSERT_TRUE(gathering.Export({.path = folder_.Path("w"), .job_name = "mine"}).ok());
    ASSERT_TRUE(gathering.LeaveToNextGeneration().ok());
    for (const Event& event : coordinator_.events) {
      EXPECT_FALSE(std::holds_alternative<Notice>(event)) << "an export that was left did not fail";
    }
  });
  // Each output was complete before LeaveToNextGeneration, or is absent.
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == "state" || name == "w") << name;
  }
}

TEST_F(GatheringTest, WeightsThatAreNotFiniteAreNotWritten) {
  weights_ = absl::OutOfRangeError("w is not finite");
  On([&](Gathering& gathering) {
    EXPECT_EQ(gathering.Consolidate(Folder({}), 5, nullptr), weights_);
    EXPECT_EQ(gathering.Export({.path = folder_.Path("model.safetensors")}), weights_);
  });
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(GatheringTest, AnExportThatFailsIsReportedAndTheNextOneIsTried) {
  const ExportConfig config{.path = folder_.Path("model.safetensors"), .job_name = "mine"};
  ASSERT_TRUE(files::WriteAtomically(config.path, "somebody's").ok());
  On([&](Gathering& gathering) {
    ASSERT_TRUE(gathering.Export(config).ok());
    ASSERT_TRUE(background_->Await().ok());
    ASSERT_EQ(coordinator_.events.size(), 1);
    const auto* failed = std::get_if<Notice>(&coordinator_.events[0]);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->step, 3);
    EXPECT_EQ(failed->reason, "EXPORT_FAILED");
    EXPECT_EQ(failed->message.rfind("export.path: ", 0), 0) << failed->message;
    EXPECT_EQ(*files::ReadFile(config.path), "somebody's");
    std::filesystem::remove(config.path);
    ASSERT_TRUE(gathering.Export(config).ok());
    ASSERT_TRUE(background_->Await().ok());
    EXPECT_EQ(coordinator_.events.size(), 1) << "the weights of the job's end are another thing";
  });
  EXPECT_TRUE(safetensors::File::Open(config.path).ok());
}

}  // namespace
}  // namespace muster::train
