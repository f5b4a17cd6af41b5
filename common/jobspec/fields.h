// The fields of a message by reflection, with their paths as in the job file.
#ifndef MUSTER_COMMON_JOBSPEC_FIELDS_H_
#define MUSTER_COMMON_JOBSPEC_FIELDS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <functional>
#include <string>
#include <vector>

namespace muster::jobspec {

// A value that is set: a present singular field, or an element of a list.
struct FieldValue {
  const google::protobuf::Message* owner;
  const google::protobuf::FieldDescriptor* field;
  int index;         // in the list; -1 for a singular field
  std::string path;  // "stages[1].fit.steps"

  std::string String() const;
  // The value of a number of any type.
  double Number() const;
  // The value in protobuf's text format: exact, texts in quotes, on one line. Not for messages.
  std::string Exact() const;
  int Enum() const;
  const google::protobuf::Message& Message() const;
};

// Visits every value that is set, messages before their own fields, in the order of the field
// numbers. Numbers and strings without presence are set if they are not zero or empty. Does not
// visit maps: their texts are for the plug-in.
void ForEachValue(const google::protobuf::Message& message,
                  const std::function<void(const FieldValue&)>& visit);

// The name of a field in job files and in paths.
const std::string& NameOf(const google::protobuf::FieldDescriptor& field);
// Returns the only field, a list, of a message that a job file writes as that list
// (FieldRule.bare). Null for other messages.
const google::protobuf::FieldDescriptor* BareList(const google::protobuf::Descriptor& type);
// The path of a field of the message at `parent`.
std::string PathOf(const std::string& parent, const google::protobuf::FieldDescriptor& field);
// The field of a key in a job file; null if the message has no such key. If two fields share the
// key (FieldRule.written), `value` decides. A mapping means the message field, a list the field
// whose messages are written as lists (FieldRule.bare), a scalar the other field.
enum class KeyValue { kMapping, kList, kScalar };
const google::protobuf::FieldDescriptor* FieldOf(const google::protobuf::Descriptor& type,
                                                 const std::string& key, KeyValue value);

// "a.b"; only `name` if the parent is the whole job.
std::string ChildPath(const std::string& parent, const std::string& name);
// "a[3]"
std::string ElementPath(const std::string& list, int index);
// "a.b" for "a.b.c" and for "a.b[2]"; "" for "a".
std::string ParentPath(const std::string& path);

// The names of an enum's values in lower case, without the unspecified value.
std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type);
// Names of the alternatives of a oneof.
std::vector<std::string> Alternatives(const google::protobuf::OneofDescriptor& oneof);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_FIELDS_H_
