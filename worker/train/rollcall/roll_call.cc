#include "worker/train/rollcall/roll_call.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <bit>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/status/status.h"
#include "worker/device/host_values.h"

namespace muster::train {
namespace {

// Calls `visit` with each field of a record, in the order of sending.
template <typename Record, typename Visit>
void ForEachField(Record& record, const Visit& visit) {
  const auto all = [&](auto&... fields) { (visit(fields), ...); };
  all(record.generation, record.step, record.attempt, record.epoch, record.cursor,
      record.input.micro_batches, record.input.samples, record.input.joined_since,
      record.newest_command, record.layout, record.mask_hash, record.first_change, record.loss.step,
      record.loss.sum, record.loss.weight, record.loss.outcome, record.collectives.count,
      record.collectives.hash, record.preempted, record.learning_rate, record.unused_news);
}

// Floating-point numbers are sent as their bits.
std::vector<int64_t> Encode(const RollCallRecord& record) {
  std::vector<int64_t> sent;
  ForEachField(record, [&](const auto& field) {
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(field)>>) {
      sent.push_back(std::bit_cast<int64_t>(field));
    } else {
      sent.push_back(field);
    }
  });
  return sent;
}

RollCallRecord Decode(const int64_t* next) {
  RollCallRecord record;
  ForEachField(record, [&](auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_floating_point_v<Field>) {
      field = std::bit_cast<Field>(*next++);
    } else {
      field = static_cast<Field>(*next++);
    }
  });
  return record;
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
  in_flight_->table =
      at::empty({in_flight_->mine.numel() * communicator_->world_size()}, at::kLong);
  in_flight_->work = communicator_->AllGather(in_flight_->table, in_flight_->mine,
                                              {.what = "roll call", .step = record.step});
}

absl::StatusOr<RollCallPlan> RollCall::Await() {
  const std::unique_ptr<InFlight> call = std::move(in_flight_);
  RETURN_IF_ERROR(call->work->Wait());
  const auto fields = device::HostValues<int64_t>(call->table);
  std::vector<RollCallRecord> table;
  for (int rank = 0; rank < communicator_->world_size(); ++rank) {
    table.push_back(Decode(fields.data() + rank * call->mine.numel()));
  }
  return Decide(table, options_);
}

}  // namespace muster::train
