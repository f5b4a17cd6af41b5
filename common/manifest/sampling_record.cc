#include "common/manifest/sampling_record.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"
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
  // So that sums of these numbers are numbers, too.
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

}  // namespace muster::manifest
