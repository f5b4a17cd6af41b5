// What commands do.
#include <spdlog/spdlog.h>

#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "common/status/status.h"
#include "worker/optim/schedule.h"
#include "worker/train/session_impl.h"
#include "worker/train/unreported.h"

namespace muster::train {
namespace {

// Between two roll calls of a job that is halted.
constexpr std::chrono::milliseconds kPauseBeat(200);
// Commands whose steps a checkpoint tells. Those that a coordinator has not heard of are among
// them.
constexpr size_t kKeptApplied = 256;

}  // namespace

absl::StatusOr<bool> SessionImpl::ApplyCommands(int64_t newest) {
  const auto get = [this](int64_t number) { return parts_.commands->Get(number); };
  bool any = false;
  while (true) {
    schedule_.TakeIn(newest, step_, get);
    while (const auto due = schedule_.Next(step_)) {
      any = true;
      RETURN_IF_ERROR(Apply(*due));
      if (stopped_) return true;
    }
    if (!paused_) return any;
    Progress("paused");
    std::this_thread::sleep_for(kPauseBeat);
    ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
    if (plan.preempted) {
      RETURN_IF_ERROR(EndHere());
      return true;
    }
    newest = plan.apply_commands;
  }
}

absl::Status SessionImpl::EndHere() {
  // Says that training may go on from here: losses are finite on every rank.
  RETURN_IF_ERROR(CallNow().status());
  if (checkpoints_ != nullptr && trains() && step_ > 0) {
    ASSIGN_OR_RETURN(const SaveResult saved, Save(SaveKind::kAtStop));
    if (!saved.files.ok() && leader()) {
      spdlog::warn(
          "it goes on elsewhere from an earlier checkpoint, because this one could not be written: "
          "{}",
          Message(saved.files));
    }
  }
  preempted_ = stopped_ = true;
  return absl::OkStatus();
}

absl::Status SessionImpl::Apply(const CommandSchedule::Due& due) {
  const Command& command = due.command;
  if (const auto* cancel = std::get_if<CancelCommand>(&command.what)) {
    if (due.cancels) {
      Report(CommandFinished{.number = cancel->target,
                             .status = absl::CancelledError("taken back before it took effect"),
                             .reason = "OPERATION_CANCELLED"});
    }
    if (due.cancels) {
      Finish(command);
    } else {
      Fail(command,
           absl::FailedPreconditionError(
               "there was nothing to take back: it had taken effect, or was taken back, before"),
           "OPERATION_APPLIED");
    }
    return absl::OkStatus();
  }
  return std::visit([&](const auto& what) { return Apply(command, what); }, command.what);
}

void SessionImpl::TellApplied(int64_t number) {
  applied_.emplace_back(number, step_);
  if (applied_.size() > kKeptApplied) applied_.pop_front();
  Report(CommandApplied{number, step_});
}

void SessionImpl::TellUnreported() {
  if (!leader()) return;
  const std::map<int64_t, int64_t> steps(applied_.begin(), applied_.end());
  const auto get = [this](int64_t number) { return parts_.commands->Get(number); };
  for (const auto& [number, what, step] :
       FindUnreported(schedule_.position(), step_, steps, parts_.commands->Newest(), get)) {
    if (what != Unreported::What::kTakenBack) Report(CommandApplied{number, step});
    if (what == Unreported::What::kApplied) continue;
    CommandFinished finished{.number = number};
    if (what == Unreported::What::kTakenBack) {
      finished.status = absl::CancelledError("taken back before it took effect");
      finished.reason = "OPERATION_CANCELLED";
    }
    Report(finished);
  }
}

void SessionImpl::Finish(const Command& command, decltype(CommandFinished::result) result) {
  TellApplied(command.number);
  Report(CommandFinished{.number = command.number,
                         .status = absl::OkStatus(),
                         .reason = "",
                         .result = std::move(result)});
}

void SessionImpl::Fail(const Command& command, const absl::Status& status,
                       const std::string& reason) {
  TellApplied(command.number);
  Report(
      CommandFinished{.number = command.number, .status = status, .reason = reason, .result = {}});
}

bool SessionImpl::NeedsTraining(const Command& command) {
  if (trains()) return true;
  Fail(command, absl::FailedPreconditionError("the job trains nothing"), "NO_OPTIMIZER");
  return false;
}

absl::Status SessionImpl::Apply(const Command& command, const StopCommand&) {
  TellApplied(command.number);
  RETURN_IF_ERROR(CallNow().status());
  if (checkpoints_ != nullptr && trains() && step_ > 0) {
    RETURN_IF_ERROR(Save(SaveKind::kAtStop).status());
  }
  stopped_ = true;
  return absl::OkStatus();
}

absl::Status SessionImpl::Apply(const Command& command, const SaveCheckpointCommand&) {
  if (checkpoints_ == nullptr) {
    Fail(command,
         absl::FailedPreconditionError(
             "the job has no place for checkpoints: its file has no `checkpoint`"),
         "NO_CHECKPOINTS");
    return absl::OkStatus();
  }
  if (!NeedsTraining(command)) return absl::OkStatus();
  // Says that training may go on from here: losses are finite on every rank.
  RETURN_IF_ERROR(CallNow().status());
  ASSIGN_OR_RETURN(const SaveResult result, Save());
  if (result.files.ok()) {
    Finish(command, *saved_);
  } else {
    Fail(command, result.files, /*reason=*/"");
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::Apply(const Command& command, const SetLearningRateCommand& set) {
  if (!NeedsTraining(command)) return absl::OkStatus();
  LearningRateSet result{.old_rate = learning_rate_, .new_rate = set.rate};
  learning_rate_ = set.rate;
  result.next_step = learning_rate_ * optim::LearningRateFactor(job_.schedule, step_);
  Finish(command, result);
  return absl::OkStatus();
}

absl::Status SessionImpl::Apply(const Command& command, const PauseCommand&) {
  paused_ = true;
  Finish(command);
  return absl::OkStatus();
}

absl::Status SessionImpl::Apply(const Command& command, const ResumeCommand&) {
  paused_ = false;
  Finish(command);
  return absl::OkStatus();
}

}  // namespace muster::train
