#include "worker/train/evaluate/text_coder.h"

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/tokenizer/bytes.h"
#include "worker/train/job/model_files.h"

namespace muster::train {

TextCoder::TextCoder(const v1::ModelSpec& model)
    : bytes_(model.tokenizer() == v1::ModelSpec::BYTES), path_(TokenizerPath(model)) {}

absl::StatusOr<std::vector<int64_t>> TextCoder::TokensOf(const std::string& text) {
  std::vector<uint32_t> tokens;
  if (bytes_) {
    tokens = tokenizer::TokensOfBytes(text);
  } else if (const auto& opened = Opened(); opened.ok()) {
    ASSIGN_OR_RETURN(tokens, opened->Encode(text, tokenizer::Tokenizer::Around::kAdded));
  } else {
    const bool absent = absl::IsNotFound(opened.status()) && !path_.empty();
    return absl::NotFoundError(
        absl::StrCat("the prompt is a text, but ",
                     absent ? absl::StrCat("there is no ", path_) : Message(opened.status()),
                     "; expected token ids (muster sample --tokens 1,2,3)"));
  }
  return std::vector<int64_t>(tokens.begin(), tokens.end());
}

std::optional<std::string> TextCoder::TextOf(const std::vector<int64_t>& tokens) {
  if (bytes_) return tokenizer::TextOfBytes(tokens);
  const auto& opened = Opened();
  return opened.ok() ? std::optional(opened->Decode(tokens)) : std::nullopt;
}

const absl::StatusOr<tokenizer::Tokenizer>& TextCoder::Opened() {
  if (opened_.has_value()) return *opened_;
  if (path_.empty()) {
    return opened_.emplace(absl::NotFoundError("the model has no tokenizer"));
  }
  return opened_.emplace(tokenizer::Tokenizer::Open(path_));
}

}  // namespace muster::train
