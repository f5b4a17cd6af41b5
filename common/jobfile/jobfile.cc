#include "common/jobfile/jobfile.h"

#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"
#include "common/files/read_beginning.h"
#include "common/jobfile/scalar.h"
#include "common/jobfile/yaml_document.h"
#include "common/jobfile/yaml_message.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/problem_list.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster::jobfile {
namespace {

using jobspec::ParentPath;

absl::Status OneProblem(const std::string& file, const std::string& message, int line) {
  v1::SpecProblems problems;
  auto* problem = problems.add_problems();
  problem->set_message(message);
  problem->set_line(line);
  return ProblemsError(file, problems);
}

// Returns whether a problem at `path` follows from a known problem at the same path or around it.
bool Follows(const std::string& path, const std::set<std::string>& known) {
  for (std::string at = path; !at.empty(); at = ParentPath(at)) {
    if (known.count(at) > 0) return true;
  }
  return false;
}

// The value of `path`, or of the nearest enclosing field with a value; null if there is none.
template <typename T>
const T* Nearest(const std::map<std::string, T>& values, const std::string& path) {
  // "a?3" is a key of `a` that is not a name.
  for (std::string at = path.substr(0, path.find('?')); !at.empty(); at = ParentPath(at)) {
    const auto found = values.find(at);
    if (found != values.end()) return &found->second;
  }
  return nullptr;
}

// The whole text as one mapping.
absl::StatusOr<YAML::Node> ParseYaml(const std::string& text, const std::string& file) {
  if (const auto other = filekind::Mismatch(text, filekind::Wanted::kJobFile)) {
    return OneProblem(file, *other, 1);
  }
  const YamlDocument document = ParseYamlDocument(text);
  if (!document.problem.empty()) return OneProblem(file, document.problem, document.line);
  const YAML::Node& root = document.root;
  if (!root.IsDefined() || root.IsNull()) {
    return OneProblem(file, "is empty; allowed: a job (see docs/reference/job-file.md)", 0);
  }
  if (!root.IsMap()) {
    return OneProblem(file,
                      absl::StrCat("found ", Found(root), "; allowed: a mapping such as 'name: x'"),
                      LineOf(root, 1));
  }
  return root;
}

}  // namespace

void AddPlaces(const JobFile& file, v1::SpecProblems* problems) {
  for (v1::SpecProblem& problem : *problems->mutable_problems()) {
    if (!problem.source().empty()) continue;
    if (const std::string* source = Nearest(file.sources, problem.path()); source != nullptr) {
      problem.set_source(*source);
      problem.clear_line();
    } else if (const int* line = Nearest(file.lines, problem.path());
               problem.line() == 0 && line != nullptr) {
      problem.set_line(*line);
    }
  }
}

absl::Status ProblemsError(const std::string& file, const v1::SpecProblems& problems) {
  const int count = problems.problems_size();
  std::string text = absl::StrCat(file, ": ", count, count == 1 ? " problem\n" : " problems\n",
                                  jobspec::FormatProblems(problems, file));
  text.pop_back();
  absl::Status error =
      MakeError(absl::StatusCode::kInvalidArgument, "JOB_SPEC_INVALID", text, {{"file", file}});
  AttachProblems(&error, problems);
  return error;
}

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The YAML tree from which YamlMessageReader reads the message again: all fields that are set,
// under their names in job files. Numbers and texts without presence are set if they are not zero
// or empty.
YAML::Node YamlOf(const Message& message);

YAML::Node YamlOfScalar(const jobspec::FieldValue& value) {
  if (value.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) return YAML::Node(value.String());
  if (value.field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return YAML::Node(value.Exact());
  const auto& type = *value.field->enum_type();
  const auto* named = type.FindValueByNumber(value.Enum());
  // The value 0, the first one, has no name.
  return YAML::Node(named != nullptr && named->index() > 0
                        ? jobspec::EnumNames(type)[named->index() - 1]
                        : absl::StrCat(value.Enum()));
}

YAML::Node YamlOfValue(const Message& owner, const FieldDescriptor& field, int index) {
  const jobspec::FieldValue value{&owner, &field, index, ""};
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE ? YamlOf(value.Message())
                                                              : YamlOfScalar(value);
}

YAML::Node YamlOfMap(const Message& owner, const FieldDescriptor& field) {
  YAML::Node map(YAML::NodeType::Map);
  const auto* reflection = owner.GetReflection();
  for (int i = 0; i < reflection->FieldSize(owner, &field); ++i) {
    const Message& entry = reflection->GetRepeatedMessage(owner, &field, i);
    const auto* texts = entry.GetReflection();
    map.force_insert(texts->GetString(entry, field.message_type()->map_key()),
                     texts->GetString(entry, field.message_type()->map_value()));
  }
  return map;
}

YAML::Node YamlOfField(const Message& owner, const FieldDescriptor& field) {
  if (field.is_map()) return YamlOfMap(owner, field);
  if (!field.is_repeated()) return YamlOfValue(owner, field, -1);
  YAML::Node list(YAML::NodeType::Sequence);
  for (int i = 0; i < owner.GetReflection()->FieldSize(owner, &field); ++i) {
    list.push_back(YamlOfValue(owner, field, i));
  }
  return list;
}

YAML::Node YamlOf(const Message& message) {
  if (const FieldDescriptor* list = jobspec::BareList(*message.GetDescriptor()); list != nullptr) {
    return YamlOfField(message, *list);
  }
  YAML::Node map(YAML::NodeType::Map);
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    map.force_insert(jobspec::NameOf(*field), YamlOfField(message, *field));
  }
  return map;
}

absl::StatusOr<JobFile> ReadTree(const YAML::Node& root, const std::string& file,
                                 const std::string& base_folder, const Overrides& overrides) {
  JobFile job{.name = file};
  const Overridden overridden = ApplyOverrides(root, overrides.settings, *job.spec.GetDescriptor());
  job.sources = overridden.sources;
  std::map<std::string, std::string> folders;
  for (const auto& [path, source] : job.sources) folders[path] = overrides.base_folder;

  YamlMessageReader reader(base_folder, folders);
  reader.Read(overridden.root, "", &job.spec);
  job.lines = reader.lines();
  // Overridden values lose their lines, which are lines of the text of --set.
  std::erase_if(job.lines,
                [&](const auto& line) { return Nearest(job.sources, line.first) != nullptr; });

  v1::SpecProblems problems = overridden.problems;
  problems.MergeFrom(reader.problems().problems());
  std::set<std::string> known = overridden.meant;
  known.insert(reader.meant().begin(), reader.meant().end());
  for (const v1::SpecProblem& problem : problems.problems()) known.insert(problem.path());
  const v1::SpecProblems semantic = jobspec::ValidateSpec(job.spec);
  for (const v1::SpecProblem& problem : semantic.problems()) {
    if (!Follows(problem.path(), known)) *problems.add_problems() = problem;
  }
  if (problems.problems().empty()) return job;
  AddPlaces(job, &problems);
  // The problems in the order of the file. Problems without a line (missing fields, overrides) are
  // last.
  std::stable_sort(problems.mutable_problems()->begin(), problems.mutable_problems()->end(),
                   [](const v1::SpecProblem& a, const v1::SpecProblem& b) {
                     return static_cast<uint32_t>(a.line() - 1) <
                            static_cast<uint32_t>(b.line() - 1);
                   });
  jobspec::LimitProblems(&problems);
  return ProblemsError(file, problems);
}

}  // namespace

absl::StatusOr<JobFile> ParseJobFile(const std::string& text, const std::string& file,
                                     const std::string& base_folder, const Overrides& overrides) {
  ASSIGN_OR_RETURN(const YAML::Node root, ParseYaml(text, file));
  return ReadTree(root, file, base_folder, overrides);
}

absl::StatusOr<JobFile> ChangeJob(const v1::JobSpec& spec, const std::string& name,
                                  const Overrides& overrides) {
  // All paths in `spec` are absolute.
  return ReadTree(YamlOf(spec), name, "/", overrides);
}

absl::StatusOr<JobFile> LoadJobFile(const std::string& path, const Overrides& overrides) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, " is a directory; a job file is needed"));
  }
  // One byte more than allowed shows that a file is too long. A device has no end.
  ASSIGN_OR_RETURN(const std::string text, files::ReadBeginning(path, kMaxJobFileBytes + 1));
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  return ParseJobFile(text, path, folder, overrides);
}

}  // namespace muster::jobfile
