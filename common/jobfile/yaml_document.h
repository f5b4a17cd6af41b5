// Parses a text as one YAML document.
#ifndef MUSTER_COMMON_JOBFILE_YAML_DOCUMENT_H_
#define MUSTER_COMMON_JOBFILE_YAML_DOCUMENT_H_

#include <yaml-cpp/yaml.h>

#include <string>

namespace muster::jobfile {

// The largest size of a job file. Job files are small; a larger file was given by mistake.
inline constexpr size_t kMaxJobFileBytes = 1 << 20;

struct YamlDocument {
  // The document. Null if the text contains only spaces and comments.
  YAML::Node root;
  // Why the text is not one YAML document; empty if it is.
  std::string problem;
  // The line (from 1) of the problem; 0 if there is no problem.
  int line = 0;
};

// Parses a text. Problems: the text is too long (also with its aliases expanded), not UTF-8, not
// YAML, or more than one document. Throws nothing. Thread-safe.
YamlDocument ParseYamlDocument(const std::string& text);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_YAML_DOCUMENT_H_
