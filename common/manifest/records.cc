#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "common/manifest/sampling_record.h"
#include "common/manifest/validation_record.h"
#include "common/manifest/whole.h"
#include "nlohmann/json.hpp"

namespace muster::manifest {

using Json = nlohmann::ordered_json;

Json ToJson(const SamplingRecord& record) {
  Json json = {{"step", record.step},       {"epoch", record.epoch},
               {"cursor", record.cursor},   {"samples", record.samples},
               {"last", record.last},       {"global_batch", record.global_batch},
               {"order", record.order},     {"seed", record.seed}};
  if (record.per_rank) json["per_rank"] = true;
  if (record.skipped) json["skipped"] = true;
  return json;
}

SamplingRecord SamplingRecordFromJson(const Json& json) {
  SamplingRecord record{.step = Whole<int64_t>(json.at("step")),
                        .epoch = Whole<int64_t>(json.at("epoch")),
                        .cursor = Whole<int64_t>(json.at("cursor")),
                        .samples = Whole<int64_t>(json.at("samples")),
                        .global_batch = Whole<int64_t>(json.at("global_batch")),
                        .last = json.at("last").get<std::string>(),
                        .order = json.at("order").get<std::string>(),
                        .seed = Whole<uint64_t>(json.at("seed"))};
  if (json.contains("per_rank")) json["per_rank"].get_to(record.per_rank);
  if (json.contains("skipped")) json["skipped"].get_to(record.skipped);
  // Limits these numbers, so that their sums do not overflow.
  const auto within = [](int64_t number, int64_t least) {
    return number >= least && number <= int64_t{1} << 50;
  };
  const bool possible = within(record.step, 0) && within(record.epoch, 0) &&
                        within(record.cursor, 0) && within(record.samples, 1) &&
                        within(record.global_batch, 1);
  if (possible) return record;
  throw std::invalid_argument(absl::StrCat("sampling: step ", record.step, ", epoch ", record.epoch,
                                           ", cursor ", record.cursor, ", samples ",
                                           record.samples, ", global_batch ", record.global_batch,
                                           ": there is no such place in the data"));
}

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
