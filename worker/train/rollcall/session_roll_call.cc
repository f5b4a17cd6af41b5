#include "worker/train/rollcall/session_roll_call.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/train/rollcall/rank_differences.h"

namespace muster::train {
namespace {

// The number of skipped steps that ends the job. So many halvings bring a loss scale of 65536 down
// to 2^-84. A gradient that is still not finite has another cause than the scale.
constexpr int64_t kMostSkippedInARow = 100;

std::vector<std::string> NamesOf(const TrainedParameters& trained) {
  std::vector<std::string> names;
  for (const auto& parameter : trained.parameters()) names.push_back(parameter.name);
  return names;
}

}  // namespace

void LossReports::Add(int64_t step, int64_t samples, const models::Model& model) {
  Waiting& added = waiting_.emplace_back();
  v1::StepMetrics& metrics = added.metrics;
  metrics.set_step(step);
  metrics.set_samples(samples);
  const models::InputSpec input = model.Input();
  double filled = 1;  // the part of the context that samples have on average
  if (input.kind == models::InputSpec::Kind::kTokens) {
    const auto context = static_cast<double>(input.context);
    if (mean_tokens_.has_value()) filled = *mean_tokens_ / context;
    metrics.set_tokens(std::llround(filled * context * static_cast<double>(samples)));
  }
  // The backward pass takes twice the operations of the forward pass.
  added.flops = 3 * model.ForwardFlops() * static_cast<double>(samples) * filled;
}

LossReports::Waiting* LossReports::Find(int64_t step) {
  for (Waiting& waiting : waiting_) {
    if (static_cast<int64_t>(waiting.metrics.step()) == step) return &waiting;
  }
  return nullptr;
}

void LossReports::SetSeconds(int64_t step, double seconds) {
  Waiting* const waiting = Find(step);
  if (waiting == nullptr) return;
  *waiting->metrics.mutable_duration() =
      google::protobuf::util::TimeUtil::NanosecondsToDuration(static_cast<int64_t>(seconds * 1e9));
  if (waiting->flops > 0 && seconds > 0) {
    waiting->metrics.set_model_flops_per_second(waiting->flops / seconds);
    if (peak_flops_ > 0) {
      waiting->metrics.set_model_flops_utilization(waiting->flops / seconds / peak_flops_);
    }
  }
}

void LossReports::AddResult(int64_t step, const StepResult& result) {
  Waiting* const waiting = Find(step);
  if (waiting == nullptr) return;
  waiting->metrics.MergeFrom(result.metrics);
  waiting->metrics.set_skipped(result.outcome != StepOutcome::kApplied);
}

std::vector<v1::StepMetrics> LossReports::Complete(const StepLoss& loss,
                                                   const models::Model& model) {
  std::vector<v1::StepMetrics> complete;
  while (!waiting_.empty() && static_cast<int64_t>(waiting_.front().metrics.step()) <= loss.step) {
    v1::StepMetrics& metrics = waiting_.front().metrics;
    if (static_cast<int64_t>(metrics.step()) == loss.step) {
      metrics.set_loss(loss.mean);
      if (model.HasPerplexity()) metrics.set_perplexity(std::exp(loss.mean));
    }
    complete.push_back(std::move(metrics));
    waiting_.pop_front();
  }
  return complete;
}

SessionRollCall::SessionRollCall(const Dependencies& deps)
    : deps_(deps),
      roll_call_(deps.control, {.names = NamesOf(*deps.trained),
                                .uneven_inputs = deps.uneven_inputs,
                                .full_micro_batches = deps.full_micro_batches}),
      loss_reports_(deps.peak_flops, deps.mean_tokens),
      unused_(NamesOf(*deps.trained)) {}

RollCallRecord SessionRollCall::Record(int64_t step, const data::Position& position) const {
  data::Sampler::Share share;
  if (deps_.sampler != nullptr) share = deps_.sampler->ShareOf(position, deps_.identity.rank);
  int64_t joined_since = 0;
  if (deps_.sampler != nullptr && share.micro_batches == 0) {
    // A rank whose data is empty has had no input since step 1.
    joined_since = deps_.samples == 0 ? 1 : step + 1 - share.idle_steps;
  }
  const comm::FlightRecorder::Digest digest = deps_.flight->digest();
  return {.generation = deps_.identity.generation,
          .step = step + 1,
          .attempt = attempt_,
          .epoch = position.epoch,
          .cursor = position.cursor,
          .input = {share.micro_batches, share.samples, joined_since},
          .newest_command = deps_.commands->Newest(),
          .layout = deps_.training == nullptr
                        ? 0
                        : std::bit_cast<int64_t>(deps_.training->strategy().plan().fingerprint),
          .learning_rate = deps_.session_state->learning_rate,
          .mask_hash = deps_.trained->wanted_hash(),
          .first_change = deps_.trained->first_change(),
          .preempted = deps_.commands->Preempted(),
          .loss = {newest_step_, newest_.loss_sum, newest_.loss_weight,
                   static_cast<int64_t>(newest_.outcome)},
          .unused_news = unused_.news(),
          .collectives = {static_cast<int64_t>(digest.begun), static_cast<int64_t>(digest.hash)}};
}

void SessionRollCall::Post(const RollCallRecord& record) {
  posted_not_finite_ = newest_.not_finite;
  posted_step_ = newest_step_;
  roll_call_.Post(record);
}

void SessionRollCall::PostNext() {
  attempt_ = 0;
  begun_ = Clock::now();
  Post(Record(deps_.session_state->step + 1, deps_.sampler->After(deps_.session_state->position)));
}

absl::StatusOr<RollCallPlan> SessionRollCall::CallNow() {
  // Each call carries one step's loss. A known loss must be sent before the next result is read.
  while (!running_.empty()) {
    if (posted_step_ < newest_step_) RETURN_IF_ERROR(BlockingCall().status());
    RETURN_IF_ERROR(AwaitResults(running_.size() - 1));
  }
  return BlockingCall();
}

absl::StatusOr<RollCallPlan> SessionRollCall::BlockingCall() {
  ++attempt_;
  Post(Record(deps_.session_state->step, deps_.session_state->position));
  return AwaitNext();
}

absl::StatusOr<RollCallPlan> SessionRollCall::AwaitNext() {
  const int64_t step = deps_.session_state->step;
  const absl::StatusOr<RollCallPlan> plan = roll_call_.Await();
  if (deps_.lease != nullptr) RETURN_IF_ERROR(deps_.lease->StillMine());
  if (absl::IsOutOfRange(plan.status())) {
    return WithOrigin(plan.status(), posted_not_finite_, step, deps_.control);
  }
  if (!plan.ok()) return plan.status();
  if (plan->collectives_differ) {
    return NameCollectiveDifference(*deps_.flight, step, deps_.control);
  }
  if (plan->masks_differ) return NameMaskDifference(*deps_.trained, step, deps_.control);
  if (plan->loss.has_value()) {
    for (const v1::StepMetrics& finished : loss_reports_.Complete(*plan->loss, *deps_.model)) {
      deps_.reports->Report(finished);
    }
  }
  if (plan->unused_news) {
    ASSIGN_OR_RETURN(const Notice notice, unused_.Exchange(step, deps_.control));
    deps_.reports->Report(notice);
  }
  if (joined_ != plan->inputs.joined) {
    joined_ = plan->inputs.joined;
    deps_.reports->Report(RanksJoined{joined_});
  }
  return plan;
}

absl::Status SessionRollCall::TakeIn(PendingStep step, int64_t samples) {
  const int64_t number = deps_.session_state->step;
  loss_reports_.Add(number, samples, *deps_.model);
  const size_t left = step.late ? 1 : 0;
  running_.push_back({number, std::move(step), begun_});
  return AwaitResults(left);
}

void SessionRollCall::SetSeconds(double seconds) {
  // A step that is still running here is late: AwaitResults sets its duration.
  if (running_.empty()) loss_reports_.SetSeconds(newest_step_, seconds);
}

absl::Status SessionRollCall::AwaitResults(size_t left) {
  while (running_.size() > left) {
    const PendingResult oldest = std::move(running_.front());
    running_.pop_front();
    ASSIGN_OR_RETURN(newest_, oldest.step.await());
    newest_step_ = oldest.number;
    if (oldest.step.late) {
      const auto since = std::max(oldest.begun, std::exchange(read_, Clock::now()));
      loss_reports_.SetSeconds(newest_step_, std::chrono::duration<double>(read_ - since).count());
    }
    loss_reports_.AddResult(newest_step_, newest_);
    unused_.Note(newest_step_, newest_.unused);
    skipped_in_a_row_ = newest_.outcome == StepOutcome::kApplied ? 0 : skipped_in_a_row_ + 1;
    if (skipped_in_a_row_ < kMostSkippedInARow) continue;
    return absl::OutOfRangeError(absl::StrCat(
        "all steps from ", newest_step_ - skipped_in_a_row_ + 1, " to ", newest_step_,
        " were skipped, because a loss, a gradient or a buffer was not finite in each; check the "
        "learning rate, the initial values, and the data of these steps"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RollCallPlan> Calls::CallNow() {
  RETURN_IF_ERROR(deps_.background->failure());
  return deps_.roll_call->CallNow();
}

absl::StatusOr<bool> Calls::AskedToEnd() {
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  return plan.preempted || StopsNow(plan);
}

absl::StatusOr<bool> Calls::PassMustEnd() {
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  return (plan.preempted && deps_.has_checkpoints) || StopsNow(plan);
}

bool Calls::StopsNow(const RollCallPlan& plan) const {
  const int64_t first = deps_.schedule->position().taken + 1;
  for (int64_t number = first; number <= plan.apply_commands; ++number) {
    const Command command = deps_.commands->Get(number);
    const bool now = static_cast<int64_t>(command.at_step()) <= deps_.session_state->step;
    if (now && command.has_stop()) return true;
  }
  return false;
}

}  // namespace muster::train
