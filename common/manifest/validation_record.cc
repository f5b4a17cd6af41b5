#include "common/manifest/validation_record.h"

#include "common/manifest/whole.h"
#include "nlohmann/json.hpp"

namespace muster::manifest {

using Json = nlohmann::ordered_json;

Json ToJson(const ValidationRecord& record) {
  Json json = Json::object();
  if (record.best.has_value()) {
    json["best"] = {{"step", record.best->step},
                    {"generation", record.best->generation},
                    {"value", record.best->value}};
  }
  if (record.patience.has_value()) {
    json["patience"] = {{"stage", record.patience->stage}, {"passes", record.patience->passes}};
    if (const auto& best = record.patience->best; best.has_value()) {
      json["patience"]["best"] = {{"step", best->first}, {"value", best->second}};
    }
  }
  if (!record.ended.empty()) json["ended"] = record.ended;
  return json;
}

ValidationRecord ValidationRecordFromJson(const Json& json) {
  ValidationRecord record;
  if (json.contains("best")) {
    const Json& best = json["best"];
    record.best = {.step = Whole<int64_t>(best.at("step")),
                   .generation = Whole<int64_t>(best.at("generation")),
                   .value = best.at("value").get<double>()};
  }
  if (json.contains("patience")) {
    const Json& patience = json["patience"];
    record.patience = {.stage = Whole<int64_t>(patience.at("stage")),
                       .best = {},
                       .passes = Whole<int64_t>(patience.at("passes"))};
    if (patience.contains("best")) {
      const Json& best = patience["best"];
      record.patience->best = {Whole<int64_t>(best.at("step")), best.at("value").get<double>()};
    }
  }
  if (json.contains("ended")) WholeTo(json["ended"], &record.ended);
  return record;
}

}  // namespace muster::manifest
