// Regular expressions of tokenizers. They are written for Oniguruma, and matched here by PCRE2,
// with the classes of Unicode.
#ifndef MUSTER_COMMON_TOKENIZER_HUGGING_FACE_PATTERN_H_
#define MUSTER_COMMON_TOKENIZER_HUGGING_FACE_PATTERN_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::tokenizer {

// Copies share the compiled expression. Threading: const.
class Pattern {
 public:
  // INVALID_ARGUMENT: not an expression, or one with parts that could mean something else in PCRE2.
  // Known are characters, classes, \s, \d, \p{..}, the groups (..), (?:..), (?i:..), (?>..) and
  // those that look ahead and back, ? * + and counts. The expression must not match nothing.
  static absl::StatusOr<Pattern> Compile(const std::string& expression);

  // The begin and end of each match, from left to right, without overlaps. text: valid UTF-8.
  // RESOURCE_EXHAUSTED: the search took too many steps.
  absl::StatusOr<std::vector<std::pair<size_t, size_t>>> FindAll(std::string_view text) const;

 private:
  struct Code;
  explicit Pattern(std::shared_ptr<const Code> code) : code_(std::move(code)) {}

  std::shared_ptr<const Code> code_;
};

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_HUGGING_FACE_PATTERN_H_
