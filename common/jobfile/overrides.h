// Values that are given besides the job file: `--set KEY=VALUE`.
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
  // Absolute. Relative paths among their values are against it.
  std::string base_folder;
};

// A YAML tree with overrides in it.
struct Overridden {
  YAML::Node root;
  // What was set, by its path: "--set KEY".
  std::map<std::string, std::string> sources;
  // Of the settings that could not be applied, each with its source.
  v1::SpecProblems problems;
  // Fields that an unknown key was probably meant to be.
  std::set<std::string> meant;
};

// KEY is a path as in messages about the job file: names with dots, elements of lists with [i].
// VALUE is YAML; it replaces what stands there, and mappings that are missing on the way are made.
// An index that is the list's length adds an element. Problems: an unknown name; an index beyond
// the end; a list without an index on the way; a value that is no YAML; an alternative of a oneof
// while the tree has another one (set the field around it to replace both). Values are not checked
// here: read the tree as `type` for that. `root` stays as it is. Throws nothing.
Overridden ApplyOverrides(const YAML::Node& root, const std::vector<std::string>& settings,
                          const google::protobuf::Descriptor& type);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_OVERRIDES_H_
