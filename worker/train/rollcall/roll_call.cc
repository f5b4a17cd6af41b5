#include "worker/train/rollcall/roll_call.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"

namespace muster::train {
namespace {

// The fields of a record as it is sent. Floating-point numbers are sent as their bits.
constexpr int kFields = 21;

std::array<int64_t, kFields> Encode(const RollCallRecord& record) {
  return {record.generation,
          record.step,
          record.attempt,
          record.epoch,
          record.cursor,
          record.input.micro_batches,
          record.input.samples,
          record.input.joined_since,
          record.newest_command,
          record.layout,
          record.mask_hash,
          record.first_change,
          record.loss.step,
          std::bit_cast<int64_t>(record.loss.sum),
          std::bit_cast<int64_t>(record.loss.weight),
          record.loss.outcome,
          record.collectives.count,
          record.collectives.hash,
          record.preempted ? 1 : 0,
          std::bit_cast<int64_t>(record.learning_rate),
          record.unused_news ? 1 : 0};
}

RollCallRecord Decode(absl::Span<const int64_t> in) {
  return {.generation = in[0],
          .step = in[1],
          .attempt = in[2],
          .epoch = in[3],
          .cursor = in[4],
          .input = {in[5], in[6], in[7]},
          .newest_command = in[8],
          .layout = in[9],
          .learning_rate = std::bit_cast<double>(in[19]),
          .mask_hash = in[10],
          .first_change = in[11],
          .preempted = in[18] != 0,
          .loss = {in[12], std::bit_cast<double>(in[13]), std::bit_cast<double>(in[14]), in[15]},
          .unused_news = in[20] != 0,
          .collectives = {in[16], in[17]}};
}

}  // namespace

struct RollCall::InFlight {
  at::Tensor mine;
  at::Tensor table;
  std::unique_ptr<comm::Work> work;
};

RollCall::RollCall(comm::Communicator* communicator, DecideOptions options)
    : communicator_(communicator), options_(std::move(options)) {}
RollCall::~RollCall() = default;

void RollCall::Post(const RollCallRecord& record) {
  in_flight_ = std::make_unique<InFlight>();
  in_flight_->mine = device::HostTensor(Encode(record));
  in_flight_->table = at::empty({kFields * communicator_->world_size()}, at::kLong);
  in_flight_->work = communicator_->AllGather(in_flight_->table, in_flight_->mine,
                                              {.what = "roll call", .step = record.step});
}

absl::StatusOr<RollCallPlan> RollCall::Await() {
  const std::unique_ptr<InFlight> call = std::move(in_flight_);
  RETURN_IF_ERROR(call->work->Wait());
  const auto fields = device::HostValues<int64_t>(call->table);
  std::vector<RollCallRecord> table;
  for (int rank = 0; rank < communicator_->world_size(); ++rank) {
    table.push_back(Decode(fields.subspan(rank * kFields, kFields)));
  }
  return Decide(table, options_);
}

}  // namespace muster::train
