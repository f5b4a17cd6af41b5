// Makes a labelled image set in the layout of MNIST (docs/data.md): digits as glyphs.h draws them.
#ifndef MUSTER_CLIENT_CLI_IMAGES_H_
#define MUSTER_CLIENT_CLI_IMAGES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::cli {

struct ImagesOptions {
  // Created if it is missing.
  std::string folder;
  // The number of images in each set; a smaller set contains the first images of a larger one.
  int64_t train = 20000;
  int64_t test = 4000;
  uint64_t seed = 0;
  // Pixels of a side.
  int size = 28;
};

struct ImageFile {
  std::string path;
  uint64_t items = 0;
};

inline constexpr int64_t kMostImages = 10'000'000;
inline constexpr int kLeastImageSize = 8;
inline constexpr int kMostImageSize = 512;

// Writes train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte. They get their names when all are durable; after an error before that
// there is no new file (but perhaps the folder). `interrupted` is called from time to time.
// INVALID_ARGUMENT: numbers out of range. CANCELLED: interrupted. Otherwise the errors of
// common/files.
absl::StatusOr<std::vector<ImageFile>> MakeImages(const ImagesOptions& options,
                                                  const std::function<bool()>& interrupted);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_IMAGES_H_
