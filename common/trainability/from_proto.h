// Converts the rules over parameters' names from the messages of the API.
#ifndef MUSTER_COMMON_TRAINABILITY_FROM_PROTO_H_
#define MUSTER_COMMON_TRAINABILITY_FROM_PROTO_H_

#include <google/protobuf/repeated_field.h>

#include <vector>

#include "common/trainability/trainability.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster {

inline TrainableRule RuleFromProto(const v1::TrainableRule& rule) {
  const bool freeze = rule.has_freeze();
  return {.freeze = freeze, .pattern = freeze ? rule.freeze() : rule.unfreeze()};
}

inline std::vector<TrainableRule> RulesFromProto(
    const google::protobuf::RepeatedPtrField<v1::TrainableRule>& rules) {
  std::vector<TrainableRule> result;
  result.reserve(rules.size());
  for (const v1::TrainableRule& rule : rules) result.push_back(RuleFromProto(rule));
  return result;
}

}  // namespace muster

#endif  // MUSTER_COMMON_TRAINABILITY_FROM_PROTO_H_
