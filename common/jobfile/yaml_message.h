// Fills a protobuf message from a YAML mapping by walking the message's descriptor, so that a new
// field in the schema is a new key in the file and nothing else has to be written.
#ifndef MUSTER_COMMON_JOBFILE_YAML_MESSAGE_H_
#define MUSTER_COMMON_JOBFILE_YAML_MESSAGE_H_

#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <set>
#include <string>

#include "common/jobspec/problem_list.h"

namespace muster::jobfile {

// Rules: keys are field names (jobspec::FieldOf); a field given twice, an unknown key, two
// alternatives of a oneof and values of another type are problems. A list of one may be written as
// its element. A message without a value (`ddp:`) is present and empty; a number or text without a
// value is a problem. A relative path (jobspec::IsPath) is made absolute with `base_folder`. In a
// map field, whose keys and values are texts, every key is allowed, and a number or a truth value
// is taken as its text in the file.
//
// Continues after a problem, so that one call finds all problems. Not thread-safe; one use.
class YamlMessageReader {
 public:
  // `base_folder` is absolute. `other_folders`: by path of a field, the folder that replaces
  // `base_folder` for this field and its own fields.
  explicit YamlMessageReader(std::string base_folder,
                             std::map<std::string, std::string> other_folders = {})
      : base_folder_(std::move(base_folder)), other_folders_(std::move(other_folders)) {}

  // Reads a mapping, or nothing at all, into `message`, whose own path is `path` ("" for the
  // whole).
  void Read(const YAML::Node& node, const std::string& path, google::protobuf::Message* message);

  const jobspec::ProblemList& problems() const { return problems_; }
  // 1-based line of every field and list element that was read, by path.
  const std::map<std::string, int>& lines() const { return lines_; }
  // Fields that were probably meant by mistyped keys: it is not a second problem that they are
  // missing.
  const std::set<std::string>& meant() const { return meant_; }

 private:
  void ReadKey(const YAML::Node& key, const YAML::Node& value, const std::string& path,
               google::protobuf::Message* message);
  void ReadField(const YAML::Node& value, const google::protobuf::FieldDescriptor& field,
                 const std::string& path, int line, google::protobuf::Message* message);
  void ReadMap(const YAML::Node& value, const google::protobuf::FieldDescriptor& field,
               const std::string& path, int line, google::protobuf::Message* message);
  // A singular field's value, or one element of a list.
  void ReadValue(const YAML::Node& value, const google::protobuf::FieldDescriptor& field,
                 const std::string& path, int line, google::protobuf::Message* message);
  // Whether a key is a name; if it is not, this is a problem of the mapping at `path`.
  bool IsName(const YAML::Node& key, const std::string& path);
  // Stores the line of a key. If the key has a line already, it was given twice.
  bool IsFirst(const std::string& path, int line);
  void MakePathAbsolute(const google::protobuf::FieldDescriptor& field, const std::string& path,
                        int line, google::protobuf::Message* message);

  const std::string& BaseFolder(const std::string& path) const;

  const std::string base_folder_;
  const std::map<std::string, std::string> other_folders_;
  jobspec::ProblemList problems_;
  std::map<std::string, int> lines_;
  std::set<std::string> meant_;
};

// 1-based line of a node; `otherwise` if yaml-cpp has none.
int LineOf(const YAML::Node& node, int otherwise);

// The problem of a key that the message does not have. *near: the field that was probably meant, or
// nothing.
std::string UnknownKey(const std::string& name, const google::protobuf::Descriptor& type,
                       std::string* near);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_YAML_MESSAGE_H_
