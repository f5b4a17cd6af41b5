#include "common/jobfile/jobfile.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/jobfile/scalar.h"
#include "common/utf8/utf8.h"
#include "common/jobfile/yaml_message.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster::jobfile {
namespace {

// Job files are small; more is another file by mistake.
constexpr size_t kMaxBytes = 1 << 20;

// "a.b[2]" -> "a.b", "a.b" -> "a", "a" -> "".
std::string Parent(const std::string& path) {
  const size_t end = path.find_last_of(".[");
  return end == std::string::npos ? std::string() : path.substr(0, end);
}

absl::Status OneProblem(const std::string& file, const std::string& message, int line) {
  v1::SpecProblems problems;
  auto* problem = problems.add_problems();
  problem->set_message(message);
  problem->set_line(line);
  return ProblemsError(file, problems);
}

// Whether a problem at `path` follows from one that is already known there or around it.
bool Follows(const std::string& path, const jobspec::ProblemList& known,
             const std::set<std::string>& meant) {
  for (std::string at = path; !at.empty(); at = Parent(at)) {
    if (known.Has(at) || meant.count(at) > 0) return true;
  }
  return false;
}

// Remembers where a document begins and cares for nothing else.
class DocumentStart : public YAML::EventHandler {
 public:
  int line() const { return line_; }

  void OnDocumentStart(const YAML::Mark& mark) override { line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int line_ = 0;
};

// The line where a second document begins; 0 when there is none. YAML::LoadAll would say the same, but on a
// stray "}" it makes empty documents without end.
int SecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart first;
  DocumentStart second;
  return parser.HandleNextDocument(first) && parser.HandleNextDocument(second) ? second.line() : 0;
}

// The whole text as one mapping.
absl::StatusOr<YAML::Node> ParseYaml(const std::string& text, const std::string& file) {
  if (text.size() > kMaxBytes) {
    return OneProblem(file, absl::StrCat("found ", text.size(), " bytes; allowed: ", kMaxBytes), 0);
  }
  const size_t text_end = std::min(ValidUtf8Prefix(text), text.find('\0'));
  if (text_end < text.size()) {
    return OneProblem(file, "holds bytes that are no UTF-8 text",
                      1 + static_cast<int>(std::count(text.begin(), text.begin() + text_end, '\n')));
  }
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsDefined() || root.IsNull()) {
      return OneProblem(file, "is empty; allowed: a job (see docs/job-file.md)", 0);
    }
    if (const int line = SecondDocument(text); line > 0) {
      return OneProblem(file, "another document begins here, or text that belongs to nothing; allowed: one job",
                        line);
    }
    if (!root.IsMap()) {
      return OneProblem(file,
                        absl::StrCat("found ", Found(root), "; allowed: a mapping such as 'name: x'"),
                        LineOf(root, 1));
    }
    return root;
  } catch (const YAML::Exception& error) {
    return OneProblem(file, absl::StrCat("this is no YAML: ", error.msg),
                      error.mark.is_null() ? 0 : error.mark.line + 1);
  }
}

}  // namespace

void AddLines(const std::map<std::string, int>& lines, v1::SpecProblems* problems) {
  for (v1::SpecProblem& problem : *problems->mutable_problems()) {
    for (std::string at = problem.path(); problem.line() == 0 && !at.empty(); at = Parent(at)) {
      const auto line = lines.find(at);
      if (line != lines.end()) problem.set_line(line->second);
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

absl::StatusOr<JobFile> ParseJobFile(const std::string& text, const std::string& file,
                                     const std::string& base_folder) {
  ASSIGN_OR_RETURN(const YAML::Node root, ParseYaml(text, file));
  JobFile job;
  YamlMessageReader reader(base_folder);
  reader.Read(root, "", &job.spec);
  job.lines = reader.lines();

  v1::SpecProblems problems = reader.problems().problems();
  v1::SpecProblems semantic = jobspec::ValidateSpec(job.spec);
  AddLines(job.lines, &semantic);
  for (const v1::SpecProblem& problem : semantic.problems()) {
    if (!Follows(problem.path(), reader.problems(), reader.meant())) *problems.add_problems() = problem;
  }
  if (problems.problems().empty()) return job;
  // As one reads the file; those without a line (missing fields) last.
  std::stable_sort(problems.mutable_problems()->begin(), problems.mutable_problems()->end(),
                   [](const v1::SpecProblem& a, const v1::SpecProblem& b) {
                     return static_cast<uint32_t>(a.line() - 1) < static_cast<uint32_t>(b.line() - 1);
                   });
  return ProblemsError(file, problems);
}

absl::StatusOr<JobFile> LoadJobFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, " is a directory; a job file is needed"));
  }
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(path));
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  return ParseJobFile(text, path, folder);
}

}  // namespace muster::jobfile
