// Fills a protobuf message from a YAML mapping, by the message's descriptor. So a new field in the
// schema is a new key in the file, without other code.
#ifndef MUSTER_COMMON_JOBFILE_YAML_MESSAGE_H_
#define MUSTER_COMMON_JOBFILE_YAML_MESSAGE_H_

#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <set>
#include <string>

#include "common/jobspec/problem_list.h"

namespace muster::jobfile {

// Reads messages by these rules:
// - Keys are field names (jobspec::FieldOf).
// - Problems are a field given twice, an unknown key, two alternatives of a oneof, and values of
//   another type.
// - A list of one element may be written as the element.
// - A message without a value (`ddp:`) is present and empty; a number or text without a value is a
//   problem.
// - A relative path (jobspec::IsPath) is made absolute with `base_folder`.
// - A map field, whose keys and values are texts, may have any key. A number or a truth value in it
//   is taken as its text in the file.
//
// Continues after a problem, so that one call finds all problems. Not thread-safe; one use.
class YamlMessageReader {
 public:
  // `base_folder` is absolute. `other_folders`: the folder that replaces `base_folder` for a field
  // and its own fields, by the field's path.
  explicit YamlMessageReader(std::string base_folder,
                             std::map<std::string, std::string> other_folders = {})
      : base_folder_(std::move(base_folder)), other_folders_(std::move(other_folders)) {}

  // Reads a mapping, or nothing, into `message`. `path` is the path of `message` ("" for the
  // whole).
  void Read(const YAML::Node& node, const std::string& path, google::protobuf::Message* message);

  const jobspec::ProblemList& problems() const { return problems_; }
  // The line (from 1) of every field and list element that was read, by path.
  const std::map<std::string, int>& lines() const { return lines_; }
  // The fields that are nearest to mistyped keys. Their absence is not a second problem.
  const std::set<std::string>& meant() const { return meant_; }

 private:
  void ReadKey(const YAML::Node& key, const YAML::Node& value, const std::string& path,
               google::protobuf::Message* message);
  void ReadField(const YAML::Node& value, const google::protobuf::FieldDescriptor& field,
                 const std::string& path, int line, google::protobuf::Message* message);
  void ReadMap(const YAML::Node& value, const google::protobuf::FieldDescriptor& field,
               const std::string& path, int line, google::protobuf::Message* message);
  // Reads a singular field's value, or one element of a list.
  void ReadValue(const YAML::Node& value, const google::protobuf::FieldDescriptor& field,
                 const std::string& path, int line, google::protobuf::Message* message);
  // Returns whether a key is a name. Adds a problem of the mapping at `path` otherwise.
  bool IsName(const YAML::Node& key, const std::string& path);
  // Stores the line of a key. Returns false, with a problem, if the key has a line already: it was
  // given twice.
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

// The line (from 1) of a node; `otherwise` if yaml-cpp has none.
int LineOf(const YAML::Node& node, int otherwise);

// The problem of a key that the message does not have. *near: the nearest field, or nothing.
std::string UnknownKey(const std::string& name, const google::protobuf::Descriptor& type,
                       std::string* near);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_YAML_MESSAGE_H_
