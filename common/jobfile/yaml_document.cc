#include "common/jobfile/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/utf8/utf8.h"

namespace muster::jobfile {
namespace {

struct YamlProblem {
  std::string message;  // empty: no problem
  int line = 0;         // 1-based; 0: unknown
};

constexpr char kNotYaml[] = "this is not YAML: ";

bool IsQuote(char c) { return c == '"' || c == '\''; }

// The position of the last quote of the quoted text that begins at text[at]; npos: it has no end.
size_t QuoteEnd(const std::string& text, size_t at) {
  const char quote = text[at];
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 == text.size() || text[i + 1] != quote) return i;
      ++i;  // '' is one quote in the text
    }
  }
  return std::string::npos;
}

// The first quote from `at` on whose text does not end before `end`; npos: none.
size_t OpenQuote(const std::string& text, size_t at, size_t end) {
  while (at < end) {
    const char before = at == 0 ? '\n' : text[at - 1];
    if (text[at] == '#' && std::string_view(" \t\n").find(before) != std::string::npos) {
      at = std::min(text.find('\n', at), end);
    } else if (IsQuote(text[at]) &&
               std::string_view(" \t\n[{,:").find(before) != std::string::npos) {
      const size_t close = QuoteEnd(text, at);
      if (close >= end) return at;
      at = close + 1;
    } else {
      ++at;
    }
  }
  return std::string::npos;
}

// Follows the events of one document.
class Outline : public YAML::EventHandler {
 public:
  Outline(const std::string& text, size_t most) : text_(text), most_(most) {}

  // The line of the document.
  int line() const { return line_; }
  const YamlProblem& problem() const { return problem_; }

  // The beginning of the newest text, and the position after it.
  size_t begin() const { return begin_; }
  size_t end() const { return end_; }
  bool quoted() const { return quoted_; }

  void OnDocumentStart(const YAML::Mark& mark) override { line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Leaf(mark, anchor, 0); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto size = sizes_.find(anchor);
    if (size == sizes_.end()) {
      Report(mark, "this alias stands for something that it is a part of");
    } else {
      has_aliases_ = true;
      Add(mark, size->second);
    }
  }
  void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                const std::string& value) override {
    Place(mark);
    Leaf(mark, anchor, value.size());
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(mark, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(mark, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Part {
    YAML::anchor_t anchor;
    uint64_t before;  // the size of the document at its beginning
  };

  void Leaf(const YAML::Mark& mark, YAML::anchor_t anchor, size_t bytes) {
    Add(mark, bytes + 1);
    if (anchor != 0) sizes_[anchor] = bytes + 1;
  }
  void Open(const YAML::Mark& mark, YAML::anchor_t anchor) {
    open_.push_back({anchor, size_});
    Add(mark, 1);
  }
  void Close() {
    const Part part = open_.back();
    open_.pop_back();
    if (part.anchor != 0) sizes_[part.anchor] = size_ - part.before;
  }
  // The size with aliases is limited. A text without aliases is never larger than its file.
  void Add(const YAML::Mark& mark, uint64_t size) {
    constexpr uint64_t kEnough = uint64_t{1} << 40;  // more would overflow after some doublings
    size_ = std::min(size_ + size, kEnough);
    if (!has_aliases_ || size_ <= most_) return;
    Report(mark, absl::StrCat("with what its aliases (*name) stand for, the text has more than ",
                              most_, " bytes; allowed: ", most_));
  }

  void Place(const YAML::Mark& mark) {
    begin_ = std::min<size_t>(mark.pos, text_.size());
    end_ = begin_;
    // Skips the properties (&anchor, !tag) before the text.
    while (end_ < text_.size() && (text_[end_] == '&' || text_[end_] == '!')) {
      end_ = std::min(text_.find_first_of(" \t\n", end_), text_.size());
      end_ = std::min(text_.find_first_not_of(" \t\n", end_), text_.size());
    }
    quoted_ = end_ < text_.size() && IsQuote(text_[end_]);
    if (!quoted_) return;
    const size_t last = QuoteEnd(text_, end_);
    end_ = last == std::string::npos ? text_.size() : last + 1;
    // yaml-cpp ends a quoted text without an end quote at the end of the file.
    if (last == std::string::npos) {
      Report(mark, absl::StrCat(kNotYaml, "the quote that begins here has no end"));
    }
  }

  void Report(const YAML::Mark& mark, const std::string& message) {
    if (problem_.message.empty()) problem_ = {message, mark.line + 1};
  }

  const std::string& text_;
  const uint64_t most_;
  int line_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool quoted_ = false;
  uint64_t size_ = 0;
  bool has_aliases_ = false;
  std::vector<Part> open_;
  std::map<YAML::anchor_t, uint64_t> sizes_;  // sizes of complete nodes
  YamlProblem problem_;
};

int LineAt(const std::string& text, size_t at) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + at, '\n'));
}

// Returns the problem that yaml-cpp reports, with the quote that causes the problem.
YamlProblem Explained(const YAML::Exception& error, const std::string& text,
                      const Outline& outline) {
  if (error.mark.is_null()) return {absl::StrCat(kNotYaml, error.msg), 0};
  const size_t at = std::min<size_t>(error.mark.pos, text.size());
  const size_t from = std::min(outline.end(), at);
  if (const size_t quote = OpenQuote(text, from, at); quote != std::string::npos) {
    return {absl::StrCat(kNotYaml, "the quote that begins here has no end (", error.msg,
                         " in line ", error.mark.line + 1, ")"),
            LineAt(text, quote)};
  }
  const int begin = LineAt(text, outline.begin());
  const int end = LineAt(text, std::min(outline.end(), text.size()));
  if (outline.quoted() && begin < end && end == error.mark.line + 1) {
    return {absl::StrCat(kNotYaml, "the quote that begins here ends in line ", end,
                         ", and there: ", error.msg, "; is a quote missing here?"),
            begin};
  }
  return {absl::StrCat(kNotYaml, error.msg), error.mark.line + 1};
}

// Returns the first problem that makes a tree impossible or too large. `text` is UTF-8. Time and
// memory are linear in `text`. The problems are:
// - The text is not YAML. For a missing end quote, the problem is at the begin quote. The same
//   holds for a quoted text over several lines before a wrong character.
// - There is more than one document.
// - An alias (*name) is a part of its own value.
// - The texts and the parts of the document take more than `most` bytes. Values of aliases count
//   once for each alias: yaml-cpp keeps one copy, but a reader of the tree makes a copy for each.
YamlProblem FindYamlProblem(const std::string& text, size_t most) {
  // Skips a byte order mark, which yaml-cpp does not count in its positions.
  if (text.rfind("\xef\xbb\xbf", 0) == 0) return FindYamlProblem(text.substr(3), most);
  Outline first(text, most);
  Outline second(text, most);
  Outline* now = &first;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    // YAML::LoadAll would also find a second document, but makes endless empty documents from a
    // stray "}".
    if (!parser.HandleNextDocument(first) || !first.problem().message.empty()) {
      return first.problem();
    }
    now = &second;
    if (!parser.HandleNextDocument(second)) return {};
  } catch (const YAML::Exception& error) {
    return now->problem().message.empty() ? Explained(error, text, *now) : now->problem();
  }
  return {"another document begins here, or text that does not belong to it; allowed: one document",
          second.line()};
}

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
