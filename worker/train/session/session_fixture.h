// Test fixture for whole sessions: a small job on real token files. The ranks are threads over
// comm/local.
#ifndef MUSTER_WORKER_TRAIN_SESSION_SESSION_FIXTURE_H_
#define MUSTER_WORKER_TRAIN_SESSION_SESSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/activity/activity.h"
#include "worker/comm/communicator.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/job/job.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session.h"

namespace muster::train {

// All strategies, with buckets so small that a small model has several.
inline const std::vector<StrategyConfig>& Strategies() {
  static const std::vector<StrategyConfig> all = {
      parallel::DdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024},
      parallel::ShardedDdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024},
      parallel::FsdpOptions{}};
  return all;
}

// Takes the reports of rank 0, and gives commands after a step has been reported.
class InMemoryCoordinator : public CommandSource, public EventSink {
 public:
  int64_t Newest() const override {
    std::lock_guard lock(mutex_);
    if (until_a_test_ && tests_.empty()) return 0;
    if (!commands_.empty()) return static_cast<int64_t>(commands_.size());
    return stop_after_step_ > 0 && !losses_.empty() && losses_.rbegin()->first >= stop_after_step_;
  }
  Command Get(int64_t number) const override {
    if (!commands_.empty()) return commands_[number - 1];
    return Numbered(number, A(v1::StopCommand()));
  }
  bool Preempted() const override { return preempted_; }
  void Report(const Event& event) override {
    if (watch_) watch_(event);
    std::lock_guard lock(mutex_);
    if (const auto* metrics = std::get_if<v1::StepMetrics>(&event)) {
      const int64_t step = metrics->step();
      if (metrics->has_test()) {
        tests_[step] = metrics->test();
      } else if (metrics->has_validation()) {
        validations_[step] = metrics->validation().loss();
      } else {
        losses_[step] = metrics->loss();
      }
    } else if (const auto* stage = std::get_if<StageStarted>(&event)) {
      stages_.push_back(stage->stage);
    } else if (const auto* over = std::get_if<StageFinished>(&event)) {
      stages_done_ = {over->stages_done, over->step};
    } else if (const auto* written = std::get_if<CheckpointWritten>(&event)) {
      if (written->best) best_.push_back(written->path);
      if (written->bytes > 0) checkpoints_.insert(checkpoints_.begin(), written->path);
    } else if (const auto* bad = std::get_if<CheckpointBad>(&event)) {
      bad_.push_back(bad->path);
    } else if (const auto* found = std::get_if<CheckpointsFound>(&event)) {
      found_ = found->found;
    } else if (const auto* started = std::get_if<SessionStarted>(&event)) {
      started_ = *started;
    } else if (const auto* applied = std::get_if<CommandApplied>(&event)) {
      applied_[applied->number] = applied->step;
    } else if (const auto* finished = std::get_if<CommandFinished>(&event)) {
      finished_[finished->number] = finished->status;
      ended_[finished->number] = *finished;
    } else if (const auto* notice = std::get_if<Notice>(&event)) {
      notices_.push_back(*notice);
    }
  }
  void Progress(int64_t step, const char*, const char* doing) override {
    if (step + 1 == preempt_in_step_ && std::string(doing) == "training") preempted_ = true;
  }

  // Puts these commands into the log from the start, in place of the stop command.
  void SetCommands(const std::vector<Command>& commands) { commands_ = commands; }
  // Gives the commands only after the first test.
  void HoldCommandsUntilATest() { until_a_test_ = true; }
  void StopAfterStep(int64_t step) { stop_after_step_ = step; }
  // Preempts the job from the middle of this step on.
  void PreemptInStep(int64_t step) { preempt_in_step_ = step; }
  // Sets a function that gets each event first.
  void Watch(const std::function<void(const Event&)>& watch) { watch_ = watch; }
  int64_t newest_step() const {
    std::lock_guard lock(mutex_);
    return losses_.empty() ? 0 : losses_.rbegin()->first;
  }
  std::map<int64_t, double> losses() const { return losses_; }
  std::map<int64_t, double> validations() const { return validations_; }
  std::map<int64_t, v1::Evaluation> tests() const { return tests_; }
  std::vector<std::string> stages() const { return stages_; }  // in the order of their begins
  StagesDone stages_done() const { return stages_done_; }
  std::vector<std::string> checkpoints() const { return checkpoints_; }  // newest first
  std::vector<std::string> best() const { return best_; }  // in the order of the reports
  // The messages of the notices, by reason.
  std::map<std::string, std::string> notice_messages() const {
    std::map<std::string, std::string> messages;
    for (const Notice& notice : notices_) messages[notice.reason] = notice.message;
    return messages;
  }
  std::vector<std::string> bad() const { return bad_; }
  std::vector<CheckpointsFound::Checkpoint> found() const { return found_; }
  SessionStarted started() const { return started_; }
  std::vector<std::string> notice_reasons() const {
    std::vector<std::string> reasons;
    for (const Notice& notice : notices_) reasons.push_back(notice.reason);
    return reasons;
  }
  std::map<int64_t, int64_t> applied() const { return applied_; }
  std::map<int64_t, absl::Status> finished() const { return finished_; }
  std::map<int64_t, CommandFinished> ended() const { return ended_; }
  std::vector<Notice> notices() const { return notices_; }

 private:
  mutable std::mutex mutex_;
  int64_t stop_after_step_ = 0;
  int64_t preempt_in_step_ = 0;
  std::atomic<bool> preempted_ = false;
  std::function<void(const Event&)> watch_;
  std::map<int64_t, double> losses_;
  std::map<int64_t, double> validations_;
  std::map<int64_t, v1::Evaluation> tests_;
  std::vector<std::string> stages_;
  StagesDone stages_done_;
  std::vector<std::string> checkpoints_;
  std::vector<std::string> best_;
  std::vector<std::string> bad_;
  std::vector<CheckpointsFound::Checkpoint> found_;
  SessionStarted started_;
  std::vector<Command> commands_;
  bool until_a_test_ = false;
  std::map<int64_t, int64_t> applied_;
  std::map<int64_t, absl::Status> finished_;
  std::map<int64_t, CommandFinished> ended_;
  std::vector<Notice> notices_;
};

struct Result {
  std::vector<absl::StatusOr<SessionEnd>> ends;
  InMemoryCoordinator coordinator;
  std::deque<activity::Activity> activities;  // by rank
};

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / info->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    WriteTokens("train.bin", 1200);
    WriteTokens("validate.bin", 90);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void WriteTokens(const std::string& name, int count) {
    std::ofstream file(folder_ / name, std::ios::binary);
    for (int i = 0; i < count; ++i) {
      const uint16_t token = (i * i) % 29;  // repeats, so that a model can learn it
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
  }

  // Returns a job with two layers, dropout, clipping and accumulation: all sources of hidden state.
  Job SmallJob() const {
    Job job;
    job.seed = 7;
    *job.spec.mutable_model() = models::SpecFromText(
        "gpt2", R"({"vocab_size": 29, "context": 8, "layers": 2, "heads": 2, "width": 16, )"
                R"("dropout": 0.1})");
    job.data.train = TokenFiles{{folder_ / "train.bin"}};
    job.data.validate = TokenFiles{{folder_ / "validate.bin"}};
    job.strategy = parallel::DdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024};
    job.optimizer = OptimizerConfig{1e-2, optim::AdamWOptions{}};
    job.schedule = optim::WarmupCosine{.warmup_steps = 3, .total_steps = 12};
    job.batch = {.per_rank = 3, .accumulate = 2};
    job.numerics.clip_grad_norm = 0.5;
    job.stages = {FitStage{12, 0}};
    return job;
  }

  CheckpointConfig Every(int64_t steps) const { return {folder_ / "ckpt", steps}; }

  // Runs all ranks to their end. `kill_rank` ends at once and takes no part.
  std::unique_ptr<Result> RunSessions(const Job& job, int world_size, int64_t generation = 1,
                                      std::vector<std::string> checkpoints = {},
                                      int64_t stop_after = 0, int kill_rank = -1) {
    auto result = std::make_unique<Result>();
    result->coordinator.StopAfterStep(stop_after);
    result->coordinator.SetCommands(commands_);
    if (commands_after_a_test_) result->coordinator.HoldCommandsUntilATest();
    result->coordinator.PreemptInStep(preempt_in_step_);
    result->coordinator.Watch(watch_);
    result->ends.assign(world_size, absl::UnknownError("did not run"));
    for (int rank = 0; rank < world_size; ++rank) result->activities.emplace_back();
    RunRanks(
        world_size,
        [&](int rank, comm::Communicator& control, comm::Communicator& data,
            comm::Communicator& parameters, comm::Communicator& files) {
          if (rank == kill_rank) return;
          const activity::Scope scope(&result->activities[rank]);
          SessionParts parts = start_;
          parts.control = &control;
          parts.gradients = &data;
          parts.parameters = &parameters;
          parts.files = &files;
          parts.commands = &result->coordinator;
          parts.events = &result->coordinator;
          parts.checkpoints.recorded = checkpoints;
          auto session = Session::Create(
              {"job", job_instance_, generation, rank, "process-" + std::to_string(rank)},
              jobs_.contains(rank) ? jobs_.at(rank) : job, parts);
          result->ends[rank] = session.ok() ? (*session)->Run() : session.status();
        },
        device_);
    return result;
  }

  std::filesystem::path folder_;
  std::string job_instance_ = "this";
  std::vector<Command> commands_;
  bool commands_after_a_test_ = false;
  int64_t preempt_in_step_ = 0;
  std::function<void(const Event&)> watch_;
  std::map<int, Job> jobs_;             // for single ranks, instead of the common job
  c10::DeviceType device_ = c10::kCPU;  // the model's
  SessionParts start_{};  // fields that all ranks share: retired checkpoints, where to start
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_SESSION_FIXTURE_H_
