// A text as one YAML document.
#ifndef MUSTER_COMMON_JOBFILE_YAML_DOCUMENT_H_
#define MUSTER_COMMON_JOBFILE_YAML_DOCUMENT_H_

#include <yaml-cpp/yaml.h>

#include <string>

namespace muster::jobfile {

// Job files are small; more is another file by mistake.
inline constexpr size_t kMaxJobFileBytes = 1 << 20;

struct YamlDocument {
  // Null where the text holds nothing but space and comments.
  YAML::Node root;
  // Why it is none; empty where it is one.
  std::string problem;
  // 1-based, of the problem; 0 where there is none.
  int line = 0;
};

// What is too long, no UTF-8, no YAML, or more than one document has a problem. Throws nothing.
// Thread-safe.
YamlDocument ParseYamlDocument(const std::string& text);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_YAML_DOCUMENT_H_
