#include "worker/train/roll_call.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "common/status/status.h"

namespace muster::train {
namespace {

// The fields of a record as it is sent. Floating-point numbers are sent as their bits.
constexpr int kFields = 20;

void Encode(const RollCallRecord& record, int64_t* out) {
  const int64_t fields[kFields] = {record.generation,
                                   record.step,
                                   record.attempt,
                                   record.epoch,
                                   record.cursor,
                                   record.micro_batches,
                                   record.samples,
                                   record.joined_since,
                                   record.newest_command,
                                   record.layout,
                                   record.mask_hash,
                                   record.first_change,
                                   record.loss_step,
                                   std::bit_cast<int64_t>(record.loss_sum),
                                   std::bit_cast<int64_t>(record.loss_weight),
                                   record.loss_outcome,
                                   record.collectives,
                                   record.collectives_hash,
                                   record.preempted ? 1 : 0,
                                   std::bit_cast<int64_t>(record.learning_rate)};
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
          .joined_since = in[7],
          .newest_command = in[8],
          .layout = in[9],
          .learning_rate = std::bit_cast<double>(in[19]),
          .mask_hash = in[10],
          .first_change = in[11],
          .preempted = in[18] != 0,
          .loss_step = in[12],
          .loss_sum = std::bit_cast<double>(in[13]),
          .loss_weight = std::bit_cast<double>(in[14]),
          .loss_outcome = in[15],
          .collectives = in[16],
          .collectives_hash = in[17]};
}

}  // namespace

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
  return Decide(table, options_);
}

}  // namespace muster::train
