// Reads one unit of a graph (graph.h).
#ifndef MUSTER_WORKER_MODELS_EXPORTED_UNIT_READER_H_
#define MUSTER_WORKER_MODELS_EXPORTED_UNIT_READER_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "worker/models/exported/graph.h"

namespace muster::models::exported {

// A unit that was read already, and its index in Graph::units.
struct CallableUnit {
  size_t index = 0;
  const GraphUnit* unit = nullptr;
};

// Reads the unit `file`. `tensors`: its parameters and buffers. `callable`: the units that it may
// call, by name. Errors: those of ReadGraph that concern one unit.
absl::StatusOr<GraphUnit> ReadUnit(const nlohmann::json& file, const UnitTensors& tensors,
                                   const std::vector<std::string>& constants, GraphUse use,
                                   const std::map<std::string, CallableUnit>& callable);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_UNIT_READER_H_
