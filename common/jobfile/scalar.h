// One YAML scalar as the value of a protobuf field.
#ifndef MUSTER_COMMON_JOBFILE_SCALAR_H_
#define MUSTER_COMMON_JOBFILE_SCALAR_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>

namespace muster::jobfile {

// Sets the field, or appends to a list. Returns the problem, with found and allowed; nothing if
// there is none. Numbers are not rounded, and a number that does not fit is refused. A number with
// a fraction or an exponent is not a whole number. A quoted number is a text. Enum values are in
// lower case.
std::optional<std::string> SetScalar(const YAML::Node& node,
                                     const google::protobuf::FieldDescriptor& field,
                                     google::protobuf::Message* message);

// The values that a field expects: "a whole number from 0 to 4294967295", "one of: cpu", "a mapping
// (name: value)".
std::string Expected(const google::protobuf::FieldDescriptor& field);

// A short description of the value in the file, for messages: "'abc'", "the text '5'", "a list", "a
// mapping", "nothing".
std::string Found(const YAML::Node& node);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_SCALAR_H_
