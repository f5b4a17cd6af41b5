// Values that are given in addition to the job file: `--set KEY=VALUE`.
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
  // "optimizer.adamw.lr=1e-4", in the order in which they apply: a later one wins.
  std::vector<std::string> settings;
  // Absolute. Relative paths among their values are relative to it.
  std::string base_folder;
};

// A YAML tree to which overrides are applied.
struct Overridden {
  YAML::Node root;
  // The source of each value that was set, by path: "--set KEY".
  std::map<std::string, std::string> sources;
  // The settings that could not be applied, each with its source.
  v1::SpecProblems problems;
  // Fields that were probably meant by an unknown key.
  std::set<std::string> meant;
};

// KEY is a path as in messages about the job file: names with dots, elements of lists with [i].
// VALUE is YAML; it replaces the present value, and missing mappings along the path are created. An
// index that is the list's length adds an element. Problems: an unknown name; an index beyond the
// end; a list in the path without an index; a value that is not YAML; an alternative of a oneof
// while the tree has another one (set the enclosing field to replace both). Values are not checked
// here: this happens when the tree is read as `type`. `root` is not changed. Throws nothing.
Overridden ApplyOverrides(const YAML::Node& root, const std::vector<std::string>& settings,
                          const google::protobuf::Descriptor& type);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_OVERRIDES_H_
