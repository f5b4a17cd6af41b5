// The steps that make a text of tokens ("decoder" in tokenizer.json). Pure.
#ifndef MUSTER_COMMON_TOKENIZER_HUGGING_FACE_DECODER_H_
#define MUSTER_COMMON_TOKENIZER_HUGGING_FACE_DECODER_H_

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/hugging_face/normalizer.h"
#include "nlohmann/json.hpp"

namespace muster::tokenizer {

// The reverse of the step of the same name that cuts texts.
struct ByteLevelDecoder {};
struct MetaspaceDecoder {
  std::string replacement;
  bool drops_first = true;  // the space that was added before the text
};
// Makes bytes of tokens such as <0x0A>.
struct ByteFallback {};
// Makes one text of all tokens.
struct Fuse {};
// Removes a character at the ends of each token.
struct Strip {
  std::string content;
  size_t start = 0;
  size_t stop = 0;
};

using DecoderStep =
    std::variant<ByteLevelDecoder, MetaspaceDecoder, ByteFallback, Fuse, Strip, Replace>;

// Reads "decoder". INVALID_ARGUMENT: a step that Muster does not know, or a wrong field.
absl::StatusOr<std::vector<DecoderStep>> ReadDecoder(const nlohmann::json& decoder);

// tokens: valid UTF-8. Returns valid UTF-8.
std::string Decode(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens);

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_HUGGING_FACE_DECODER_H_
