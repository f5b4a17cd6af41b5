#include "worker/train/roll_call.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::train {
namespace {

// The record as it travels: the members in order, floating point by its bits.
constexpr int kFields = 13;

void Encode(const RollCallRecord& record, int64_t* out) {
  const int64_t fields[kFields] = {
      record.generation,      record.step,          record.attempt,
      record.epoch,           record.cursor,        record.micro_batches,
      record.samples,         record.newest_command, record.plan_fingerprint,
      record.loss_step,       std::bit_cast<int64_t>(record.loss_sum), record.loss_micro_batches,
      record.loss_outcome};
  std::copy(fields, fields + kFields, out);
}

RollCallRecord Decode(const int64_t* in) {
  return {.generation = in[0],
          .step = in[1],
          .attempt = in[2],
          .epoch = in[3],
          .cursor = in[4],
          .micro_batches = in[5],
          .samples = in[6],
          .newest_command = in[7],
          .plan_fingerprint = in[8],
          .loss_step = in[9],
          .loss_sum = std::bit_cast<double>(in[10]),
          .loss_micro_batches = in[11],
          .loss_outcome = in[12]};
}

using Field = int64_t RollCallRecord::*;

// What every rank must say alike.
constexpr std::pair<const char*, Field> kEqual[] = {
    {"generation", &RollCallRecord::generation},
    {"step", &RollCallRecord::step},
    {"attempt", &RollCallRecord::attempt},
    {"epoch", &RollCallRecord::epoch},
    {"sampler cursor", &RollCallRecord::cursor},
    {"plan fingerprint (model, job, sizes of the data sets)", &RollCallRecord::plan_fingerprint},
    {"loss step", &RollCallRecord::loss_step},
    {"outcome of the loss step", &RollCallRecord::loss_outcome},
};

absl::Status CheckAgreement(const std::vector<RollCallRecord>& table) {
  for (const auto& [name, field] : kEqual) {
    for (size_t rank = 1; rank < table.size(); ++rank) {
      if (table[rank].*field == table[0].*field) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "roll call of step ", table[0].step, ": the ranks differ in ", name, ": rank 0 says ",
          table[0].*field, ", rank ", rank, " says ", table[rank].*field));
    }
  }
  return absl::OkStatus();
}

// "rank 1 (nan), rank 4 (inf)", capped at three; empty when all losses are finite.
std::string NonFiniteLosses(const std::vector<RollCallRecord>& table) {
  constexpr int kShown = 3;
  std::string text;
  int count = 0;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    if (std::isfinite(table[rank].loss_sum) || ++count > kShown) continue;
    absl::StrAppend(&text, count == 1 ? "" : ", ", "rank ", rank, " (", table[rank].loss_sum, ")");
  }
  if (count > kShown) absl::StrAppend(&text, " and ", count - kShown, " more");
  return text;
}

// What must not go on: see Outcome.
absl::Status CheckLosses(const std::vector<RollCallRecord>& table, double mean) {
  const auto outcome = static_cast<Outcome>(table[0].loss_outcome);
  if (outcome == Outcome::kSkipped) return absl::OkStatus();
  const std::string ranks = NonFiniteLosses(table);
  std::string message;
  if (!ranks.empty()) {
    message = absl::StrCat("the loss of step ", table[0].loss_step, " is not finite on ", ranks);
  } else if (outcome == Outcome::kRefused) {
    message = absl::StrCat("a gradient of step ", table[0].loss_step,
                           " is not finite, although the loss is (", mean, ")");
  } else {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat(
      message,
      outcome == Outcome::kApplied ? "; no checkpoint and no export holds anything of it"
                                   : "; nothing of it was applied",
      "; look at the learning rate, clip_grad_norm, and the data of that step"));
}

absl::StatusOr<std::optional<StepLoss>> MeanLoss(const std::vector<RollCallRecord>& table) {
  if (table[0].loss_step == 0) return std::nullopt;
  double sum = 0;
  int64_t micro_batches = 0;
  for (const RollCallRecord& record : table) {
    sum += record.loss_sum;
    micro_batches += record.loss_micro_batches;
  }
  const double mean = sum / static_cast<double>(micro_batches);
  RETURN_IF_ERROR(CheckLosses(table, mean));
  return StepLoss{table[0].loss_step, mean};
}

}  // namespace

absl::StatusOr<RollCallPlan> Decide(const std::vector<RollCallRecord>& table) {
  RETURN_IF_ERROR(CheckAgreement(table));
  RollCallPlan plan;
  ASSIGN_OR_RETURN(plan.loss, MeanLoss(table));
  plan.apply_commands = table[0].newest_command;
  int64_t micro_batches = 0;
  for (const RollCallRecord& record : table) {
    plan.apply_commands = std::min(plan.apply_commands, record.newest_command);
    plan.samples += record.samples;
    micro_batches += record.micro_batches;
  }
  plan.divisor = static_cast<double>(std::max<int64_t>(micro_batches, 1));
  return plan;
}

struct RollCall::InFlight {
  at::Tensor mine;
  at::Tensor table;
  std::unique_ptr<comm::Work> work;
};

RollCall::RollCall(comm::Communicator* communicator) : communicator_(communicator) {}
RollCall::~RollCall() = default;

void RollCall::Post(const RollCallRecord& record) {
  in_flight_ = std::make_unique<InFlight>();
  in_flight_->mine = at::empty({kFields}, at::kLong);
  in_flight_->table = at::empty({kFields * communicator_->world_size()}, at::kLong);
  Encode(record, in_flight_->mine.data_ptr<int64_t>());
  in_flight_->work = communicator_->AllGather(in_flight_->table, in_flight_->mine,
                                              {.what = "roll call", .step = record.step});
}

absl::StatusOr<RollCallPlan> RollCall::Await() {
  const std::unique_ptr<InFlight> call = std::move(in_flight_);
  RETURN_IF_ERROR(call->work->Wait());
  std::vector<RollCallRecord> table;
  for (int rank = 0; rank < communicator_->world_size(); ++rank) {
    table.push_back(Decode(call->table.data_ptr<int64_t>() + rank * kFields));
  }
  return Decide(table);
}

}  // namespace muster::train
