#include "worker/parallel/fsdp/whole_units.h"

#include <utility>

#include "common/status/status.h"

namespace muster::parallel {

WholeUnits::WholeUnits(std::vector<std::string> names, std::function<void(const UnitEvent&)> trace)
    : trace_(std::move(trace)) {
  for (std::string& name : names) units_.push_back({.name = std::move(name), .groups = {}});
}

void WholeUnits::AddGroup(size_t unit, std::unique_ptr<FlatGroup> group) {
  units_[unit].groups.push_back(std::move(group));
}

void WholeUnits::Trace(size_t unit, UnitEvent::Kind kind) const {
  if (trace_) trace_({units_[unit].name, kind, bytes_});
}

void WholeUnits::StartGather(size_t number) {
  Unit& unit = units_[number];
  if (unit.whole) return;
  for (const auto& group : unit.groups) bytes_ += group->Gather(step_);
  unit.whole = true;
  below_root_ += number != 0;
  Trace(number, UnitEvent::Kind::kGather);
}

absl::Status WholeUnits::Await(size_t number) {
  StartGather(number);
  for (const auto& group : units_[number].groups) RETURN_IF_ERROR(group->Await());
  return absl::OkStatus();
}

void WholeUnits::Free(size_t number) {
  Unit& unit = units_[number];
  if (!std::exchange(unit.whole, false)) return;
  for (const auto& group : unit.groups) bytes_ -= group->Free();
  below_root_ -= number != 0;
  Trace(number, UnitEvent::Kind::kFree);
}

void WholeUnits::FreeAll() {
  for (size_t i = 0; i < units_.size(); ++i) Free(i);
}

absl::Status WholeUnits::BeginPass(PassMemory memory, std::function<void()> exchange) {
  for (Unit& unit : units_) unit.whole_before_pass = unit.whole;
  exchange_ = std::move(exchange);
  RETURN_IF_ERROR(Exchange());
  stay_whole_ = memory == PassMemory::kWhole;
  for (size_t i = 0; stay_whole_ && i < units_.size(); ++i) StartGather(i);
  return absl::OkStatus();
}

absl::Status WholeUnits::EndPass() {
  stay_whole_ = false;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i].whole_before_pass) Free(i);
  }
  RETURN_IF_ERROR(Exchange());
  exchange_ = nullptr;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (units_[i].whole_before_pass) StartGather(i);
  }
  return absl::OkStatus();
}

absl::Status WholeUnits::Exchange() {
  if (exchange_ == nullptr) return absl::OkStatus();
  for (const Unit& unit : units_) {
    // A gather in flight reads the slices.
    for (const auto& group : unit.groups) RETURN_IF_ERROR(group->Await());
  }
  exchange_();
  for (size_t i = 0; i < units_.size(); ++i) {
    // Groups of units that are not whole may have memory, too, if they are resident.
    for (const auto& group : units_[i].groups) group->GatherAgain(step_);
    if (units_[i].whole) Trace(i, UnitEvent::Kind::kGather);
  }
  return absl::OkStatus();
}

int64_t WholeUnits::bytes_to_gather() const {
  int64_t bytes = 0;
  for (const Unit& unit : units_) {
    for (const auto& group : unit.groups) bytes += group->bytes_to_gather();
  }
  return bytes;
}

absl::Status WholeUnits::GatherValues(const std::vector<bool>& wanted) {
  for (size_t i = 0; i < units_.size(); ++i) {
    for (const auto& group : units_[i].groups) {
      if (wanted[i]) {
        RETURN_IF_ERROR(group->GatherValues(step_));
      } else {
        group->ReleaseValues();
      }
    }
  }
  return absl::OkStatus();
}

void WholeUnits::ReleaseValues() {
  for (const Unit& unit : units_) {
    for (const auto& group : unit.groups) group->ReleaseValues();
  }
}

}  // namespace muster::parallel
