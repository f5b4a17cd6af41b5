// Values given in addition to the job file: `--set KEY=VALUE`.
#ifndef MUSTER_COMMON_JOBFILE_OVERRIDES_H_
#define MUSTER_COMMON_JOBFILE_OVERRIDES_H_

#include <google/protobuf/descriptor.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/muster/v1/error.pb.h"

namespace muster::jobfile {

struct Overrides {
  // Settings such as "optimizer.adamw.lr=1e-4", in order: a later one replaces an earlier one.
  std::vector<std::string> settings;
  // The absolute folder to which relative paths among the values are relative.
  std::string base_folder;
};

// A YAML tree to which overrides are applied.
struct Overridden {
  YAML::Node root;
  // The source of each value that was set, by path: "--set KEY".
  std::map<std::string, std::string> sources;
  // The settings that could not be applied, each with its source.
  v1::SpecProblems problems;
  // The fields that are nearest to unknown keys.
  std::set<std::string> meant;
};

// Applies settings to a copy of `root`. Throws nothing. KEY is a path as in messages about the job
// file: names with dots, elements of lists with [i]. VALUE is YAML, and replaces the present value.
// Missing mappings along the path are created. An index equal to the list's length adds an element.
// Does not check values: the reader of the tree as `type` does so. Problems:
// - an unknown name
// - an index beyond the end, or a list in the path without an index
// - a value that is not YAML
// - an alternative of a oneof while the tree has another one (set the enclosing field to replace
//   both)
Overridden ApplyOverrides(const YAML::Node& root, const std::vector<std::string>& settings,
                          const google::protobuf::Descriptor& type);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_OVERRIDES_H_
