#include "common/jobfile/yaml_document.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/utf8/utf8.h"

namespace muster::jobfile {
namespace {

// Stores where a document begins, and ignores all other events.
class DocumentStart : public YAML::EventHandler {
 public:
  int line() const { return line_; }

  void OnDocumentStart(const YAML::Mark& mark) override { line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int line_ = 0;
};

// The line where a second document begins; 0 if there is none. YAML::LoadAll would also find it,
// but for a stray "}" it makes empty documents without end.
int SecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart first;
  DocumentStart second;
  return parser.HandleNextDocument(first) && parser.HandleNextDocument(second) ? second.line() : 0;
}

YamlDocument Refused(const std::string& problem, int line) {
  return {.problem = problem, .line = line};
}

}  // namespace

YamlDocument ParseYamlDocument(const std::string& text) {
  if (text.size() > kMaxJobFileBytes) {
    return Refused(absl::StrCat("found ", text.size(), " bytes; allowed: ", kMaxJobFileBytes), 0);
  }
  const size_t text_end = std::min(ValidUtf8Prefix(text), text.find('\0'));
  if (text_end < text.size()) {
    return Refused("holds bytes that are not UTF-8 text",
                   1 + static_cast<int>(std::count(text.begin(), text.begin() + text_end, '\n')));
  }
  try {
    YamlDocument document{.root = YAML::Load(text)};
    if (!document.root.IsDefined() || document.root.IsNull()) return {};
    if (const int line = SecondDocument(text); line > 0) {
      return Refused(
          "another document begins here, or text that does not belong to it; allowed: one document",
          line);
    }
    return document;
  } catch (const YAML::Exception& error) {
    return Refused(absl::StrCat("this is not YAML: ", error.msg),
                   error.mark.is_null() ? 0 : error.mark.line + 1);
  }
}

}  // namespace muster::jobfile
