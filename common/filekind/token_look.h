// What the bytes of a token file look like, if that is not what its `dtype` says: written with
// another width, as another type, or big-endian. Pure.
#ifndef MUSTER_COMMON_FILEKIND_TOKEN_LOOK_H_
#define MUSTER_COMMON_FILEKIND_TOKEN_LOOK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace muster::filekind {

// The first bytes of a file that the functions below look at, at most.
inline constexpr size_t kTokenLook = size_t{1} << 16;

// A doubt about tokens that are all in the vocabulary: "every second token is 0 in the first 4096:
// ...". `width`: the bytes of a token, 2 or 4. Nothing if the beginning looks like what it should
// be: random tokens of any vocabulary, constant ones, short files, and text of bytes.
std::optional<std::string> DoubtAboutTokens(const uint8_t* data, size_t size, size_t width);

// Where a token of the beginning is beyond the vocabulary: another reading of the same bytes in
// which none is. "the first 4096 would all be below it if they had 4 bytes each (dtype: uint32)".
// Nothing if there is no such reading, or if the beginning is within the vocabulary.
std::optional<std::string> OtherReading(const uint8_t* data, size_t size, size_t width,
                                        int64_t vocab_size);

}  // namespace muster::filekind

#endif  // MUSTER_COMMON_FILEKIND_TOKEN_LOOK_H_
