// Guesses how a token file was written if its bytes do not fit its `dtype`: with another width, as
// another type, or big-endian. Pure.
#ifndef MUSTER_COMMON_FILEKIND_TOKEN_LOOK_H_
#define MUSTER_COMMON_FILEKIND_TOKEN_LOOK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace muster::filekind {

// The largest number of first bytes that the functions below look at.
inline constexpr size_t kTokenLook = size_t{1} << 16;

// Returns a doubt about tokens that are all in the vocabulary: "every second token is 0 in the
// first 4096: ...". `width`: the bytes of a token, 2 or 4. Returns nothing if the beginning looks
// right: random tokens of any vocabulary, constant tokens, short files, and text of bytes.
std::optional<std::string> DoubtAboutTokens(const uint8_t* data, size_t size, size_t width);

// Returns another reading of the bytes in which all tokens are within the vocabulary: "the first
// 4096 would all be below it if they had 4 bytes each (dtype: uint32)". Returns nothing if there is
// no such reading, or if the beginning is within the vocabulary already.
std::optional<std::string> OtherReading(const uint8_t* data, size_t size, size_t width,
                                        int64_t vocab_size);

}  // namespace muster::filekind

#endif  // MUSTER_COMMON_FILEKIND_TOKEN_LOOK_H_
