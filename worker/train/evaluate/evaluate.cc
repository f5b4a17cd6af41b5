#include "worker/train/evaluate/evaluate.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/memory/memory_scope.h"
#include "worker/train/data/read_ahead.h"
#include "worker/train/evaluate/evaluation_totals.h"
#include "worker/train/job/numbered.h"
#include "worker/train/ranks/agreement.h"
#include "worker/train/step/autocast.h"

namespace muster::train {
namespace {

// Asks at some rounds whether a pass must end. All methods are collectives.
class Questions {
 public:
  // `calls`: null if nothing ends the pass.
  Questions(Calls* calls, comm::Communicator* ranks) : calls_(calls), ranks_(*ranks) {}

  // Whether the pass ends before this round.
  absl::StatusOr<bool> EndsBefore(int64_t round) {
    if (calls_ == nullptr || !pace_.Due(round)) return false;
    ASSIGN_OR_RETURN(const bool ends, calls_->PassMustEnd());
    if (ends) return true;
    ASSIGN_OR_RETURN(const double seconds, SecondsOfTheSlowest());
    pace_.Asked(round, seconds);
    return false;
  }

 private:
  absl::StatusOr<double> SecondsOfTheSlowest() {
    using Microseconds = std::chrono::microseconds;
    const auto now = std::chrono::steady_clock::now();
    const auto own = std::chrono::duration_cast<Microseconds>(now - last_).count();
    last_ = now;
    const at::Tensor mine = device::HostTensor(std::array<int64_t, 1>{own});
    const at::Tensor all = at::empty({ranks_.world_size()}, at::kLong);
    RETURN_IF_ERROR(ranks_.AllGather(all, mine, {.what = "pace of a pass"})->Wait());
    const auto times = device::HostValues<int64_t>(all);
    return static_cast<double>(*std::max_element(times.begin(), times.end())) / 1e6;
  }

  Calls* const calls_;
  comm::Communicator& ranks_;
  PassPace pace_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

void PassPace::Asked(int64_t round, double seconds) {
  if (seconds < 0.5) {
    between_ *= 2;
  } else if (seconds > 1) {
    const double fewer = static_cast<double>(between_) / seconds;
    between_ = std::max<int64_t>(1, static_cast<int64_t>(fewer));
  }
  next_ = round + between_;
}

absl::StatusOr<std::optional<v1::Evaluation>> SessionEvaluation::Evaluate(Set set,
                                                                          Interrupts interrupts) {
  const RankData& source = *(set == Set::kTest ? test_ : validate_);
  const char* const name = set == Set::kTest ? "data.test" : "data.validate";
  models::Model& model = deps_.live->model();
  models::ForwardContext& context = deps_.live->context();
  const c10::AutoGradMode no_gradients(false);
  const AutocastScope autocast(deps_.job->numerics.precision, deps_.live->device().type());
  context.set_mode(models::Mode::kEvaluate);
  const int rank = deps_.control->rank();
  const data::EvaluationPlan plan =
      source.Evaluation(deps_.control->world_size(), deps_.job->batch.per_rank);
  ReadAhead reader(source.dataset.get(), deps_.live->device());
  EvaluationTotals totals(model, deps_.live->device());
  absl::Status unread;  // the first error of this rank's samples
  Questions questions(interrupts == Interrupts::kByAnEnd ? calls_ : nullptr, deps_.control);
  for (int64_t round = 0; round < plan.rounds(); ++round) {
    ASSIGN_OR_RETURN(const bool ends, questions.EndsBefore(round));
    if (ends) return std::nullopt;
    const auto indices = plan.Samples(rank, round);
    // A rank that cannot read its samples takes part until the ranks have agreed on the error.
    const bool idle = indices.empty() || !unread.ok();
    if (idle && !context.collective()) continue;
    const memory::MemoryScope scope(memory::Purpose::kActivations);
    data::Batch batch;
    if (!idle) {
      auto read = reader.Read(indices);
      if (read.ok()) {
        batch = *std::move(read);
        if (round + 1 < plan.rounds()) reader.Begin(plan.Samples(rank, round + 1));
      } else {
        unread = Annotate(read.status(), SamplesOf(name, indices));
      }
    }
    const bool counts = !idle && unread.ok();
    if (!counts) {  // This rank takes part only in collectives.
      if (!context.collective()) continue;
      batch = reader.Blank(1);
    }
    const models::LossOutput loss = model.Loss(batch, context);
    activity::Moved();
    if (counts) totals.Add(loss, static_cast<int64_t>(indices.size()));
  }
  RETURN_IF_ERROR(AgreedStatus(unread, "the samples of a pass", *deps_.control));
  return totals.Reduce(name, deps_.session_state->step, *deps_.control);
}

absl::StatusOr<std::optional<v1::Evaluation>> SessionEvaluation::Pass(Set set,
                                                                      Interrupts interrupts) {
  const bool test = set == Set::kTest;
  LiveState& live = *deps_.live;
  deps_.reports->Progress(test ? "testing" : "validating");
  v1::StepMetrics metrics;
  metrics.set_step(deps_.session_state->step);
  RETURN_IF_ERROR(live.AwaitParameters());
  ASSIGN_OR_RETURN(const auto scope, deps_.passes->Begin(live.training()));
  auto evaluation = Evaluate(set, interrupts);
  // End also follows an error that all ranks have, because such an error need not end the session.
  if (evaluation.ok() || IsAgreed(evaluation.status())) RETURN_IF_ERROR(scope->End());
  RETURN_IF_ERROR(evaluation.status());
  if (!evaluation->has_value()) return std::nullopt;
  *(test ? metrics.mutable_test() : metrics.mutable_validation()) = **evaluation;
  deps_.reports->Report(metrics);
  return evaluation;
}

bool SessionEvaluation::HasDataFor(const std::string& stage) const {
  if (stage == kValidateStage) return validate_ != nullptr;
  return stage == kTestStage && test_ != nullptr;
}

absl::StatusOr<Evaluator::Evaluated> SessionEvaluation::EvaluateNow(const std::string& stage) {
  auto evaluation = Pass(stage == kTestStage ? Set::kTest : Set::kValidate, Interrupts::kNever);
  // Training does not need these data. It continues if all ranks know the error.
  if (IsAgreed(evaluation.status())) return Evaluated(evaluation.status());
  RETURN_IF_ERROR(evaluation.status());
  return Evaluated(StageEvaluated{deps_.session_state->step, stage, **std::move(evaluation)});
}

}  // namespace muster::train
