// The steps that change a text before it is cut into parts ("normalizer" in tokenizer.json). Pure.
#ifndef MUSTER_COMMON_TOKENIZER_HUGGING_FACE_NORMALIZER_H_
#define MUSTER_COMMON_TOKENIZER_HUGGING_FACE_NORMALIZER_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/hugging_face/unicode.h"
#include "nlohmann/json.hpp"

namespace muster::tokenizer {

// Puts a text before a text that is not empty.
struct Prepend {
  std::string text;
};

struct Replace {
  std::string from;
  std::string to;
};

using NormalStep = std::variant<NormalForm, Prepend, Replace>;

// Reads "normalizer". INVALID_ARGUMENT: a step that Muster does not know, or a wrong field.
absl::StatusOr<std::vector<NormalStep>> ReadNormalSteps(const nlohmann::json& normalizer);

// Reads a Replace step, which decoders have, too.
absl::StatusOr<Replace> ReadReplace(const nlohmann::json& step);
std::string Replaced(const std::string& text, const Replace& replace);

// text: valid UTF-8; so is the result.
std::string Apply(const std::vector<NormalStep>& steps, std::string text);

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_HUGGING_FACE_NORMALIZER_H_
