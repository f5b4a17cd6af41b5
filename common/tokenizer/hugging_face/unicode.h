// Characters of UTF-8 text, with the classes that tokenizers of Hugging Face distinguish. All texts
// are valid UTF-8 unless a function says otherwise. Pure.
#ifndef MUSTER_COMMON_TOKENIZER_HUGGING_FACE_UNICODE_H_
#define MUSTER_COMMON_TOKENIZER_HUGGING_FACE_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::tokenizer {

// A character and the number of its bytes.
struct Character {
  uint32_t code = 0;
  size_t bytes = 0;
};
// The character that begins at this position, below text.size().
Character CharacterAt(std::string_view text, size_t position);
// The character that ends before this position, which is above 0.
Character CharacterBefore(std::string_view text, size_t position);

// The property White_Space.
bool IsSpace(uint32_t code);
// The categories Nd, Nl and No.
bool IsNumber(uint32_t code);

void AppendCharacter(uint32_t code, std::string* text);

enum class NormalForm { kC, kD, kKC, kKD };
std::string Normalized(std::string_view text, NormalForm form);

// Returns any bytes as UTF-8: each part that is not valid becomes one U+FFFD, as in Rust's
// from_utf8_lossy.
std::string Lossy(std::string_view bytes);

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_HUGGING_FACE_UNICODE_H_
