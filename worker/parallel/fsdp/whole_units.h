// The whole units of a model: those with their full parameters in memory.
//
// Threading: one thread.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_WHOLE_UNITS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_WHOLE_UNITS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/parallel/fsdp/flat_group.h"
#include "worker/parallel/parameter_store.h"

namespace muster::parallel {

// An event of the full parameters of a unit.
struct UnitEvent {
  enum class Kind {
    kGather,          // a gather of the unit begins
    kFree,            // the unit is freed
    kForward,         // the unit is gathered, and its forward begins
    kBeforeBackward,  // the unit is gathered, and its backward begins
    kAfterBackward,   // the gradients of the unit's inputs are complete
  };
  std::string unit;  // the name of the unit; "" is the root
  Kind kind = Kind::kGather;
  int64_t whole_bytes = 0;  // of the full parameters of all units, after the event
  friend bool operator==(const UnitEvent&, const UnitEvent&) = default;
};

// The numbers of units are those of the plan (unit_plan.h): the root is 0.
class WholeUnits {
 public:
  // trace: called at each event; may be empty.
  WholeUnits(std::vector<std::string> names, std::function<void(const UnitEvent&)> trace);

  void AddGroup(size_t unit, std::unique_ptr<FlatGroup> group);
  void BeginStep(int64_t step) { step_ = step; }

  // Starts to gather a unit, unless it is whole. A collective of all ranks.
  void StartGather(size_t unit);
  // Gathers a unit, unless it is whole, and waits for the gather.
  absl::Status Await(size_t unit);
  // Frees a unit, if it is whole. Waits first for a gather in flight.
  void Free(size_t unit);
  void FreeAll();
  // See ParameterStore.
  absl::Status BeginPass(PassMemory memory, std::function<void()> exchange);
  absl::Status EndPass();
  // Returns whether units stay whole because a pass with PassMemory::kWhole runs.
  bool stay_whole() const { return stay_whole_; }
  // The bytes of memory that gathering all units would allocate.
  int64_t bytes_to_gather() const;
  // The number of whole units below the root.
  int below_root() const { return below_root_; }

  // See ParameterStore::Gather and Release. wanted: for each unit, whether its parameters are read.
  // No unit may be whole at the call.
  absl::Status GatherValues(const std::vector<bool>& wanted);
  void ReleaseValues();

  void Trace(size_t unit, UnitEvent::Kind kind) const;

 private:
  struct Unit {
    std::string name;
    std::vector<std::unique_ptr<FlatGroup>> groups;
    bool whole = false;  // gathered, or the gather is in flight
    bool whole_before_pass = false;
  };
  // Changes the values of the slices, and gathers groups that have memory again, in the same
  // memory.
  absl::Status Exchange();

  const std::function<void(const UnitEvent&)> trace_;
  std::vector<Unit> units_;
  int64_t step_ = 0;
  int64_t bytes_ = 0;
  int below_root_ = 0;
  // The state of a pass.
  bool stay_whole_ = false;
  std::function<void()> exchange_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_WHOLE_UNITS_H_
