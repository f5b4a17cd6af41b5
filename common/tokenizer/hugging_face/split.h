// The steps that cut a text into the parts which a tokenizer's model then turns into tokens
// ("pre_tokenizer" in tokenizer.json). Pure.
#ifndef MUSTER_COMMON_TOKENIZER_HUGGING_FACE_SPLIT_H_
#define MUSTER_COMMON_TOKENIZER_HUGGING_FACE_SPLIT_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/hugging_face/pattern.h"
#include "nlohmann/json.hpp"

namespace muster::tokenizer {

// A part of a text.
struct Part {
  std::string text;
  bool first = false;  // the part is at the begin of the whole text
};

// What becomes of a part that matches.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct Split {
  std::variant<std::string, Pattern> pattern;
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;  // parts between the matches count as matches
};

// Writes each byte as a character, after the split of GPT-2.
struct ByteLevel {
  bool add_prefix_space = true;
  std::optional<Pattern> split;
};

struct Digits {
  bool individual = false;
};

// Writes spaces as another character, for SentencePiece.
struct Metaspace {
  std::string replacement;
  enum class Prepend { kNever, kFirst, kAlways } prepend = Prepend::kAlways;
  bool split = true;
};

using SplitStep = std::variant<Split, ByteLevel, Digits, Metaspace>;

// Reads "pre_tokenizer". INVALID_ARGUMENT: a step that Muster does not know, or a wrong field.
absl::StatusOr<std::vector<SplitStep>> ReadSplitSteps(const nlohmann::json& pre_tokenizer);

// Carries the steps out. Errors: those of Pattern::FindAll.
absl::Status Apply(const std::vector<SplitStep>& steps, std::vector<Part>* parts);

// The character that stands for a byte in the vocabulary of a byte-level tokenizer.
const std::string& CharacterOfByte(unsigned char byte);

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_HUGGING_FACE_SPLIT_H_
