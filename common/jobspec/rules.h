// The rules that stand beside the fields of a message (muster.v1.FieldRule), carried out by
// reflection: what holds where a field is left out, and which values are allowed. Pure functions,
// thread-safe.
#ifndef MUSTER_COMMON_JOBSPEC_RULES_H_
#define MUSTER_COMMON_JOBSPEC_RULES_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/options.pb.h"

namespace muster::jobspec {

// The empty one where the field has none.
const v1::FieldRule& RuleOf(const google::protobuf::FieldDescriptor& field);

// Whether a string field, or each element of it, is a path.
bool IsPath(const google::protobuf::FieldDescriptor& field);

// Sets each field that is left out and has a default, in `message` and in every message that it
// holds then. Crashes where a default does not fit its field's type: a mistake in the schema, which
// the test finds.
void FillDefaults(google::protobuf::Message* message);

// Adds what breaks a rule, in the order of the fields: what is missing, a oneof without a choice,
// an unknown number of an enum, a number outside its range or not finite, a text that is not what
// it has to be.
void CheckRules(const google::protobuf::Message& message, ProblemList* problems);

// What the rule allows of a number: "1 to 16777216", "a number above 0"; "" where it says nothing.
std::string AllowedNumbers(const v1::FieldRule& rule);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_RULES_H_
