// One YAML scalar as the value of a protobuf field.
#ifndef MUSTER_COMMON_JOBFILE_SCALAR_H_
#define MUSTER_COMMON_JOBFILE_SCALAR_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>

namespace muster::jobfile {

// Sets the field, or appends to it where it is a list. Returns what is wrong, found and allowed;
// nothing when all is well. Numbers are not rounded: a fraction or an exponent is no whole number,
// what does not fit is refused. A quoted number is a text. Enum values are in lower case.
std::optional<std::string> SetScalar(const YAML::Node& node,
                                     const google::protobuf::FieldDescriptor& field,
                                     google::protobuf::Message* message);

// What a field expects: "a whole number from 0 to 4294967295", "one of: cpu", "a mapping (name:
// value)".
std::string Expected(const google::protobuf::FieldDescriptor& field);

// What stands in the file, short, for messages: "'abc'", "the text '5'", "a list", "a mapping",
// "nothing".
std::string Found(const YAML::Node& node);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_SCALAR_H_
