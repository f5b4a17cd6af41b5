// Byte pair encoding (Sennrich et al. 2016): joins the two neighbours with the earliest rule, again
// and again ("model" in tokenizer.json). Pure.
#ifndef MUSTER_COMMON_TOKENIZER_HUGGING_FACE_BPE_H_
#define MUSTER_COMMON_TOKENIZER_HUGGING_FACE_BPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace muster::tokenizer {

class Bpe {
 public:
  // INVALID_ARGUMENT: another kind of model, rules about tokens that are not in the vocabulary, two
  // tokens with one id, byte_fallback without a token for each byte, or an option that Muster does
  // not know.
  static absl::StatusOr<Bpe> Read(const nlohmann::json& model);

  // Appends the tokens of a part: valid UTF-8, not empty.
  void Encode(const std::string& part, std::vector<uint32_t>* tokens) const;

  const std::unordered_map<std::string, uint32_t>& vocabulary() const { return vocabulary_; }

 private:
  struct Rule {
    uint32_t rank = 0;
    uint32_t joined = 0;
  };
  // A part as a list of tokens of which neighbours are joined.
  class Word;

  absl::Status FindBytes();
  absl::Status ReadRules(const nlohmann::json& merges);
  // Adds the token of a character, or the tokens of its bytes, or the token of unknown characters.
  void AddCharacter(const std::string& character, bool* unknown_before, Word* word) const;
  static uint64_t Pair(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  std::unordered_map<std::string, uint32_t> vocabulary_;
  std::unordered_map<uint64_t, Rule> rules_;
  std::optional<uint32_t> unknown_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  std::vector<uint32_t> bytes_;  // with byte_fallback_: the token of each byte
  bool ignore_merges_ = false;   // a part that is a token is this token
};

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_HUGGING_FACE_BPE_H_
