#include "common/jobfile/yaml_document.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/jobfile/yaml_outline.h"
#include "common/utf8/utf8.h"

namespace muster::jobfile {
namespace {

YamlDocument Refused(const std::string& problem, int line) {
  return {.problem = problem, .line = line};
}

}  // namespace

YamlDocument ParseYamlDocument(const std::string& text) {
  if (text.size() > kMaxJobFileBytes) {
    return Refused(
        absl::StrCat("found more than ", kMaxJobFileBytes, " bytes; allowed: ", kMaxJobFileBytes),
        0);
  }
  const size_t text_end = std::min(ValidUtf8Prefix(text), text.find('\0'));
  if (text.rfind("\xff\xfe", 0) == 0 || text.rfind("\xfe\xff", 0) == 0) {
    return Refused("is text in UTF-16; save it as UTF-8", 1);
  }
  if (text_end < text.size()) {
    return Refused("holds bytes that are not UTF-8 text",
                   1 + static_cast<int>(std::count(text.begin(), text.begin() + text_end, '\n')));
  }
  const YamlProblem problem = FindYamlProblem(text, kMaxJobFileBytes);
  if (!problem.message.empty()) return Refused(problem.message, problem.line);
  try {
    YamlDocument document{.root = YAML::Load(text)};
    if (!document.root.IsDefined() || document.root.IsNull()) return {};
    return document;
  } catch (const YAML::Exception& error) {
    return Refused(absl::StrCat("this is not YAML: ", error.msg),
                   error.mark.is_null() ? 0 : error.mark.line + 1);
  }
}

}  // namespace muster::jobfile
