// The YAML tree from which YamlMessageReader reads a message again.
#ifndef MUSTER_COMMON_JOBFILE_YAML_OF_MESSAGE_H_
#define MUSTER_COMMON_JOBFILE_YAML_OF_MESSAGE_H_

#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

namespace muster::jobfile {

// All fields that are set, under their names in job files. A number or text without presence counts
// as set unless it is zero or empty.
YAML::Node YamlOf(const google::protobuf::Message& message);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_YAML_OF_MESSAGE_H_
