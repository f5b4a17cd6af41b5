// Parses a text as one YAML document.
#ifndef MUSTER_COMMON_JOBFILE_YAML_DOCUMENT_H_
#define MUSTER_COMMON_JOBFILE_YAML_DOCUMENT_H_

#include <yaml-cpp/yaml.h>

#include <string>

namespace muster::jobfile {

// Job files are small; a larger file was given by mistake.
inline constexpr size_t kMaxJobFileBytes = 1 << 20;

struct YamlDocument {
  // Null if the text contains only spaces and comments.
  YAML::Node root;
  // Why the text is not such a document; empty if it is one.
  std::string problem;
  // 1-based line of the problem; 0 if there is no problem.
  int line = 0;
};

// It is a problem if the text is too long, also with what its aliases stand for, not UTF-8, not
// YAML, or more than one document. Throws nothing. Thread-safe.
YamlDocument ParseYamlDocument(const std::string& text);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_YAML_DOCUMENT_H_
