// Draws digits that differ from image to image, so that their classification has to be learnt:
// strokes of several shapes per digit under a random affine map, in random thickness and
// brightness, with clutter and noise. A linear classifier stays far below what a small
// convolutional network reaches (docs/data.md has figures).
//
// An image depends on (seed, split, index, size) alone, to the bit and on every platform: only
// operations that IEEE 754 rounds exactly are used (+ - * / sqrt; the build forbids contraction),
// and integers.
#ifndef MUSTER_CLIENT_CLI_GLYPHS_H_
#define MUSTER_CLIENT_CLI_GLYPHS_H_

#include <cstdint>
#include <vector>

namespace muster::cli {

inline constexpr int kGlyphClasses = 10;

struct Glyph {
  uint8_t label = 0;            // 0 to 9
  std::vector<uint8_t> pixels;  // size x size, row by row, 0 black
};

// `split` keeps training and test images apart. `size` is at least 8.
Glyph DrawGlyph(uint64_t seed, uint64_t split, uint64_t index, int size);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_GLYPHS_H_
