#include "worker/train/evaluate/evaluate.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/memory/memory_scope.h"
#include "worker/train/data/read_ahead.h"
#include "worker/train/evaluate/evaluation_totals.h"
#include "worker/train/evaluate/pass_pace.h"
#include "worker/train/job/numbered.h"
#include "worker/train/ranks/agreed_status.h"

namespace muster::train {
namespace {

// Asks `pass.interrupted` now and then. All methods are collectives.
class Questions {
 public:
  explicit Questions(const EvaluationPass& pass) : pass_(pass) {}

  // Whether the pass ends before this round.
  absl::StatusOr<bool> EndsBefore(int64_t round) {
    if (pass_.interrupted == nullptr || !pace_.Due(round)) return false;
    ASSIGN_OR_RETURN(const bool ends, pass_.interrupted());
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
    comm::Communicator& ranks = *pass_.communicator;
    const at::Tensor mine = device::HostTensor(std::array<int64_t, 1>{own});
    const at::Tensor all = at::empty({ranks.world_size()}, at::kLong);
    RETURN_IF_ERROR(ranks.AllGather(all, mine, {.what = "pace of a pass"})->Wait());
    const auto times = device::HostValues<int64_t>(all);
    return static_cast<double>(*std::max_element(times.begin(), times.end())) / 1e6;
  }

  const EvaluationPass& pass_;
  PassPace pace_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

absl::StatusOr<std::optional<v1::Evaluation>> Evaluate(const EvaluationPass& pass) {
  const c10::AutoGradMode no_gradients(false);
  pass.context->set_mode(models::Mode::kEvaluate);
  const int rank = pass.communicator->rank();
  const data::EvaluationPlan plan =
      pass.source->Evaluation(pass.communicator->world_size(), pass.per_rank);
  ReadAhead reader(pass.source->dataset.get(), pass.device);
  EvaluationTotals totals(*pass.model, pass.device);
  absl::Status unread;  // the first error of this rank's samples
  Questions questions(pass);
  for (int64_t round = 0; round < plan.rounds(); ++round) {
    ASSIGN_OR_RETURN(const bool ends, questions.EndsBefore(round));
    if (ends) return std::nullopt;
    const auto indices = plan.Samples(rank, round);
    // A rank that cannot read its samples takes part until the ranks have agreed on the error.
    const bool idle = indices.empty() || !unread.ok();
    if (idle && !pass.context->collective()) continue;
    const memory::MemoryScope scope(memory::Purpose::kActivations);
    data::Batch batch;
    if (!idle) {
      auto read = reader.Read(indices);
      if (read.ok()) {
        batch = *std::move(read);
        if (round + 1 < plan.rounds()) reader.Begin(plan.Samples(rank, round + 1));
      } else {
        unread = Annotate(read.status(), SamplesOf(pass.data, indices));
      }
    }
    const bool counts = !idle && unread.ok();
    if (!counts) {  // only for the collectives of the other ranks
      if (!pass.context->collective()) continue;
      batch = reader.Blank(1);
    }
    const models::LossOutput loss = pass.model->Loss(batch, *pass.context);
    activity::Moved();
    if (counts) totals.Add(loss, static_cast<int64_t>(indices.size()));
  }
  RETURN_IF_ERROR(AgreedStatus(unread, "the samples of a pass", *pass.communicator));
  return totals.Reduce(pass.data, pass.step, *pass.communicator);
}

}  // namespace muster::train
