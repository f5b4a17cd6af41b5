// Tokens that are found in a text before it is cut into parts, such as <|endoftext|>
// ("added_tokens" in tokenizer.json). Pure.
#ifndef MUSTER_COMMON_TOKENIZER_HUGGING_FACE_ADDED_TOKENS_H_
#define MUSTER_COMMON_TOKENIZER_HUGGING_FACE_ADDED_TOKENS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/hugging_face/normalizer.h"
#include "nlohmann/json.hpp"

namespace muster::tokenizer {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool special = false;    // does not belong to the text of people
  bool lstrip = false;     // takes the white space before it
  bool rstrip = false;     // takes the white space after it
  bool normalized = true;  // is found after the normalizer
};

// Leaves out empty tokens. `vocabulary`: of the model. INVALID_ARGUMENT: a wrong field;
// single_word, because programs differ on what a word is; an id that `tokenizers` would not give.
// It gives a token of the vocabulary its id there, and any other token the next id.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(
    const nlohmann::json& added_tokens,
    const std::unordered_map<std::string, uint32_t>& vocabulary);

// A text, or a token in place of a text.
struct Piece {
  std::string text;
  std::optional<uint32_t> token;
};

// Finds tokens. At each place the longest token counts.
class TokenFinder {
 public:
  TokenFinder() = default;
  explicit TokenFinder(std::vector<AddedToken> tokens);

  std::vector<Piece> Find(const std::string& text) const;

 private:
  // Returns the longest token that begins at this position; null if none does.
  const AddedToken* LongestAt(const std::string& text, size_t at) const;

  // By the first byte; in each list the longest is first.
  std::map<char, std::vector<AddedToken>> tokens_;
};

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_HUGGING_FACE_ADDED_TOKENS_H_
