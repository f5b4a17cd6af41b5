#include "client/cli/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "client/cli/glyphs.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/temp_dir.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

const auto kNever = [] { return false; };

class ImagesTest : public testing::Test {
 protected:
  ImagesOptions Small(const std::string& folder) {
    return {.folder = dir_.Path(folder), .train = 30, .test = 7, .seed = 3, .size = 20};
  }
  std::string Read(const std::string& folder, const std::string& name) {
    return files::ReadFile(files::JoinPath(dir_.Path(folder), name)).value();
  }

  files::TempDir dir_;
};

TEST_F(ImagesTest, WritesTheFourFilesOfMnist) {
  const auto made = MakeImages(Small("a"), kNever);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->size(), 4u);
  EXPECT_EQ((*made)[0].path, dir_.Path("a") + "/train-images-idx3-ubyte");
  EXPECT_EQ((*made)[0].items, 30u);
  const std::string images = Read("a", "train-images-idx3-ubyte");
  EXPECT_EQ(images.substr(0, 16), std::string("\0\0\x08\3\0\0\0\x1e\0\0\0\x14\0\0\0\x14", 16));
  EXPECT_EQ(images.size(), 16u + 30 * 20 * 20);
  const std::string labels = Read("a", "train-labels-idx1-ubyte");
  EXPECT_EQ(labels.substr(0, 8), std::string("\0\0\x08\1\0\0\0\x1e", 8));
  EXPECT_EQ(labels.size(), 8u + 30);
  EXPECT_EQ(Read("a", "t10k-images-idx3-ubyte").size(), 16u + 7 * 20 * 20);
  EXPECT_EQ(Read("a", "t10k-labels-idx1-ubyte").size(), 8u + 7);
  const Glyph glyph = DrawGlyph(3, 1, 6, 20);
  EXPECT_EQ(Read("a", "t10k-labels-idx1-ubyte").back(), glyph.label);
  EXPECT_EQ(Read("a", "t10k-images-idx3-ubyte").substr(16 + 6 * 400),
            std::string(glyph.pixels.begin(), glyph.pixels.end()));
}

TEST_F(ImagesTest, TheFirstImagesAreTheSameHoweverManyThereAre) {
  ImagesOptions more = Small("b");
  more.train = 50;
  ASSERT_TRUE(MakeImages(Small("a"), kNever).ok());
  ASSERT_TRUE(MakeImages(more, kNever).ok());
  EXPECT_EQ(Read("a", "train-images-idx3-ubyte").substr(16),
            Read("b", "train-images-idx3-ubyte").substr(16, 30 * 400));
  more.folder = dir_.Path("c");
  more.seed = 4;
  ASSERT_TRUE(MakeImages(more, kNever).ok());
  EXPECT_NE(Read("b", "train-images-idx3-ubyte"), Read("c", "train-images-idx3-ubyte"));
}

TEST_F(ImagesTest, AnErrorOrAnInterruptLeavesWhatWasThere) {
  ASSERT_TRUE(MakeImages(Small("a"), kNever).ok());
  const std::string before = Read("a", "train-images-idx3-ubyte");
  ImagesOptions other = Small("a");
  other.seed = 9;
  int asked = 0;
  // Between the two sets.
  EXPECT_EQ(MakeImages(other, [&] { return ++asked > 1; }).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(Read("a", "train-images-idx3-ubyte"), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.Path("a")), {}), 4);
  other.size = 7;
  EXPECT_THAT(std::string(MakeImages(other, kNever).status().message()),
              HasSubstr("--size 7: allowed is 8 to 512"));
  other = Small("a");
  other.test = 0;
  EXPECT_THAT(std::string(MakeImages(other, kNever).status().message()), HasSubstr("--test 0"));
}

TEST(GlyphsTest, TheLabelsAreEven) {
  int counts[kGlyphClasses] = {};
  for (int i = 0; i < 5000; ++i) ++counts[DrawGlyph(0, 0, i, 8).label];
  for (const int count : counts)
    EXPECT_NEAR(count, 500, 100);  // more than four standard deviations
}

// Fails where another compiler or processor draws something else: then data sets made there are
// others.
TEST(GlyphsTest, TheSameBytesEverywhere) {
  std::string pixels;
  for (int i = 0; i < 200; ++i) {
    const Glyph glyph = DrawGlyph(1, 0, i, 28);
    pixels += static_cast<char>(glyph.label);
    pixels.append(glyph.pixels.begin(), glyph.pixels.end());
  }
  EXPECT_EQ(files::HashBytes(pixels.data(), pixels.size()), "f134b7c312bb9e6450c9595b6d386b37");
}

}  // namespace
}  // namespace muster::cli
