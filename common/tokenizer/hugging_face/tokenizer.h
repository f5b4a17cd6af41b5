// Tokenizers of Hugging Face, from the file tokenizer.json: byte-level BPE (GPT-2, Llama 3, Qwen,
// SmolLM) and BPE with the conventions of SentencePiece (Llama 2, Mistral). The tokens are those of
// the Python package `tokenizers`.
#ifndef MUSTER_COMMON_TOKENIZER_HUGGING_FACE_TOKENIZER_H_
#define MUSTER_COMMON_TOKENIZER_HUGGING_FACE_TOKENIZER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/hugging_face/added_tokens.h"
#include "common/tokenizer/hugging_face/bpe.h"
#include "common/tokenizer/hugging_face/decoder.h"
#include "common/tokenizer/hugging_face/normalizer.h"
#include "common/tokenizer/hugging_face/split.h"

namespace muster::tokenizer {

// Threading: const.
class Tokenizer {
 public:
  // Errors: those of reading the file; INVALID_ARGUMENT: another kind of tokenizer, or a setting
  // that would make other tokens. Each names the file.
  static absl::StatusOr<Tokenizer> Open(const std::string& path);
  // json: the contents of the file.
  static absl::StatusOr<Tokenizer> Read(const nlohmann::json& json);

  // kAdded: with the tokens that the tokenizer puts before and after a text, such as <s>.
  enum class Around { kAdded, kNone };
  // INVALID_ARGUMENT: the text is not UTF-8. RESOURCE_EXHAUSTED: a regular expression of the file
  // takes too many steps.
  absl::StatusOr<std::vector<uint32_t>> Encode(const std::string& text, Around around) const;

  // Returns valid UTF-8, without special tokens. Ids that are no tokens are left out.
  std::string Decode(const std::vector<int64_t>& tokens) const;

  // The highest id plus 1.
  int64_t size() const { return texts_.empty() ? 0 : int64_t{texts_.rbegin()->first} + 1; }

 private:
  absl::Status ReadAround(const nlohmann::json& post_processor);

  std::vector<NormalStep> normal_steps_;
  std::vector<SplitStep> split_steps_;
  std::vector<DecoderStep> decoder_steps_;
  Bpe model_;
  TokenFinder raw_;         // tokens that are found before the normalizer
  TokenFinder normalized_;  // tokens that are found after the normalizer
  std::vector<uint32_t> before_;
  std::vector<uint32_t> after_;
  std::map<uint32_t, std::string> texts_;
  std::set<uint32_t> special_;
};

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_HUGGING_FACE_TOKENIZER_H_
