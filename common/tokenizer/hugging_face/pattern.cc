#include "common/tokenizer/hugging_face/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::tokenizer {
namespace {

// White space as Oniguruma understands \s. PCRE2's \s has U+180E, too.
constexpr char kSpaces[] =
    R"(\t\n\x{0B}\f\r\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F})"
    R"(\x{3000})";

constexpr uint32_t kMostSteps = 50'000'000;

// Rewrites an expression, or says which part of it PCRE2 could understand differently.
class Translator {
 public:
  explicit Translator(const std::string& expression) : from_(expression) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < from_.size()) RETURN_IF_ERROR(Step());
    return to_;
  }

 private:
  bool Next(std::string_view text) const { return from_.compare(at_, text.size(), text) == 0; }

  absl::Status Step() {
    const char c = from_[at_];
    if (c == '\\') return Escape();
    if (in_class_) {
      if (c == '[' || Next("&&")) return Refuse("a class within a class");
      if (c == ']') in_class_ = false;
    } else if (c == '[') {
      in_class_ = true;
      // A ] that comes first is a character of the class.
      Copy(Next("[^") ? 2 : 1);
      if (Next("]")) Copy(1);
      return absl::OkStatus();
    } else if (c == '(') {
      return Group();
    } else if (c == '{') {
      return Count();
    }
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status Group() {
    for (const char* known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!Next(known)) continue;
      if (Next("(?i:")) RETURN_IF_ERROR(CheckFolding());
      Copy(std::string_view(known).size());
      return absl::OkStatus();
    }
    if (Next("(?") || Next("(*")) return Refuse("an unusual group");
    Copy(1);
    return absl::OkStatus();
  }

  // Without regard to case, some pairs of letters are also one character: ss and U+00DF.
  absl::Status CheckFolding() const {
    const std::string group = absl::AsciiStrToLower(from_.substr(at_, from_.find(')', at_) - at_));
    for (const char* pair : {"ss", "ff", "fi", "fl", "st"}) {
      if (absl::StrContains(group, pair)) return Refuse("letters that fold into one character");
    }
    return absl::OkStatus();
  }

  // {n}, {n,} or {n,m}. What follows could be a part of the count, or a count of its own.
  absl::Status Count() {
    const size_t end = from_.find('}', at_);
    const std::string count = end == std::string::npos ? "" : from_.substr(at_ + 1, end - at_ - 1);
    const bool digits = !count.empty() && count[0] != ',' &&
                        count.find_first_not_of("0123456789,") == std::string::npos &&
                        count.find(',') == count.rfind(',');
    const bool followed = digits && end + 1 < from_.size() &&
                          std::string_view("+?*{").find(from_[end + 1]) != std::string_view::npos;
    if (!digits || followed) return Refuse("an unusual count");
    Copy(end + 1 - at_);
    return absl::OkStatus();
  }

  absl::Status Escape() {
    if (at_ + 1 == from_.size()) return Refuse("a \\ at the end");
    const char c = from_[at_ + 1];
    if (c == 's' || c == 'S') {
      if (in_class_ && c == 'S') return Refuse("\\S in a class");
      at_ += 2;
      absl::StrAppend(&to_, in_class_ ? "" : c == 's' ? "[" : "[^", kSpaces, in_class_ ? "" : "]");
      return absl::OkStatus();
    }
    if (c == 'p' || c == 'P') return Property();
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        std::string_view("dDrntfx").find(c) == std::string_view::npos) {
      return Refuse(absl::StrCat("\\", std::string(1, c)));
    }
    Copy(2);
    return absl::OkStatus();
  }

  // \p{L}: a category; \p{Han}: a script. PCRE2's short name of a script has more characters.
  absl::Status Property() {
    const size_t end = from_.find('}', at_);
    if (from_.compare(at_ + 2, 1, "{") != 0 || end == std::string::npos) {
      return Refuse("a property without braces");
    }
    const std::string name = from_.substr(at_ + 3, end - at_ - 3);
    for (const char letter : name) {
      if (!absl::ascii_isalpha(static_cast<unsigned char>(letter)) && letter != '_') {
        return Refuse("an unusual property");
      }
    }
    absl::StrAppend(&to_, from_.substr(at_, 3), name.size() > 2 ? "sc:" : "", name, "}");
    at_ = end + 1;
    return absl::OkStatus();
  }

  void Copy(size_t count) {
    to_.append(from_, at_, count);
    at_ += count;
  }

  absl::Status Refuse(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("the regular expression '", from_, "' has ",
                                                   what, " (character ", at_,
                                                   "), which Muster does not read"));
  }

  const std::string& from_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string to_;
};

std::string TextOf(int code) {
  PCRE2_UCHAR text[200];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Code {
  explicit Code(pcre2_code* compiled)
      : code(compiled), limits(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(limits, kMostSteps);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, the search is only slower
  }
  ~Code() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* const code;
  pcre2_match_context* const limits;
};

absl::StatusOr<Pattern> Pattern::Compile(const std::string& expression) {
  ASSIGN_OR_RETURN(const std::string translated, Translator(expression).Run());
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the regular expression '", expression, "': ", TextOf(error)));
  }
  Pattern pattern(std::make_shared<const Code>(code));
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the regular expression '", expression,
                                                   "' can match nothing, which Muster does not "
                                                   "read"));
  }
  return pattern;
}

absl::StatusOr<std::vector<std::pair<size_t, size_t>>> Pattern::FindAll(
    std::string_view text) const {
  std::vector<std::pair<size_t, size_t>> found;
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr), pcre2_match_data_free);
  const PCRE2_SIZE* const offsets = pcre2_get_ovector_pointer(data.get());
  size_t at = 0;
  while (at <= text.size()) {
    const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), code_->limits);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the tokenizer's regular expression cannot be searched in a text of ",
                       text.size(), " bytes: ", TextOf(result)));
    }
    found.emplace_back(offsets[0], offsets[1]);
    at = offsets[1];
  }
  return found;
}

}  // namespace muster::tokenizer
