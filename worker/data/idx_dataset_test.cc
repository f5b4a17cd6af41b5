#include "worker/data/idx_dataset.h"

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/zeros.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Images of 2 x 3 bytes, 4 classes.
constexpr InputSpec kSpec{.kind = InputSpec::Kind::kRows, .row_elements = 6, .classes = 4};

std::string Idx(const std::vector<uint32_t>& shape, const std::string& data, char type = 0x08) {
  std::string file = {0, 0, type, static_cast<char>(shape.size())};
  for (const uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(size >> shift);
  }
  return file + data;
}

std::string Gzip(const std::string& bytes) {
  z_stream z = {};
  EXPECT_EQ(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&z, bytes.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = bytes.size();
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = packed.size();
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

std::string Counting(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(i);
  return bytes;
}

class IdxDatasetTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    EXPECT_TRUE(files::WriteAtomically(dir_.Path(name), bytes).ok());
    return dir_.Path(name);
  }

  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& images,
                                                const std::string& labels,
                                                const InputSpec& spec = kSpec) {
    return OpenIdx({.images = {images}, .labels = {labels}}, spec);
  }
  // The status of opening or, after success, of Check.
  absl::Status StatusOf(const std::string& images, const std::string& labels,
                        const InputSpec& spec = kSpec) {
    const auto dataset = Open(images, labels, spec);
    return dataset.ok() ? (*dataset)->Check({}) : dataset.status();
  }
  absl::Status ErrorOf(const std::string& images, const std::string& labels,
                       const InputSpec& spec = kSpec) {
    const absl::Status status = StatusOf(images, labels, spec);
    EXPECT_FALSE(status.ok());
    return status;
  }
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }

  std::string Images() { return Write("images", Idx({2, 2, 3}, Counting(12))); }
  std::string Labels() { return Write("labels", Idx({2}, {3, 0})); }

  files::TempDir dir_;
};

std::vector<float> Flat(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), tensor.data_ptr<float>() + tensor.numel()};
}

TEST_F(IdxDatasetTest, ImagesOfOneChannelAreScaledAndFilesFollowOneAnother) {
  const IdxOptions options{.images = {Images(), Write("more", Idx({1, 2, 3}, "\xff\x33zzzz"))},
                           .labels = {Labels(), Write("more-labels", Idx({1}, {2}))},
                           .mean = 0.5,
                           .std = 0.25};
  const auto dataset = OpenIdx(options, kSpec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 3);
  const std::vector<int64_t> samples = {2, 0};
  const auto batch = (*dataset)->Read(samples);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->inputs.sizes(), (at::IntArrayRef{2, 1, 2, 3}));
  const auto inputs = Flat(batch->inputs);
  EXPECT_EQ(inputs[0], 2.0f);  // (255 / 255 - 0.5) / 0.25
  EXPECT_EQ(inputs[1], static_cast<float>((0x33 / 255.0 - 0.5) / 0.25));
  EXPECT_EQ(inputs[6], -2.0f);
  EXPECT_EQ(inputs[11], static_cast<float>((5 / 255.0 - 0.5) / 0.25));
  EXPECT_EQ(batch->targets[0].item<int64_t>(), 2);
  EXPECT_EQ(batch->targets[1].item<int64_t>(), 3);
}

TEST_F(IdxDatasetTest, ImagesWithChannelsKeepThem) {
  const auto dataset = Open(Write("i", Idx({1, 3, 1, 2}, Counting(6))), Write("l", Idx({1}, {1})));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::vector<int64_t> samples = {0};
  EXPECT_EQ((*dataset)->Read(samples)->inputs.sizes(), (at::IntArrayRef{1, 3, 1, 2}));
}

TEST_F(IdxDatasetTest, AGzipFileIsTheSame) {
  const std::string images = Idx({2, 2, 3}, Counting(12));
  // The second file has two members, as `cat a.gz b.gz` makes them.
  for (const std::string& packed :
       {Gzip(images), Gzip(images.substr(0, 20)) + Gzip(images.substr(20))}) {
    const auto dataset = Open(Write("i.gz", packed), Write("l.gz", Gzip(Idx({2}, {3, 0}))));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const std::vector<int64_t> samples = {1, 0};
    const auto expected = (*Open(Images(), Labels()))->Read(samples);
    const auto found = (*dataset)->Read(samples);
    EXPECT_EQ(Flat(found->inputs), Flat(expected->inputs));
    EXPECT_EQ(found->targets[0].item<int64_t>(), 0);
  }
}

TEST_F(IdxDatasetTest, EveryTruncationIsRefusedPackedOrNot) {
  const std::string images = Idx({2, 2, 3}, Counting(12));
  const std::string labels = Labels();
  for (size_t size = 0; size < images.size(); ++size) {
    const absl::Status plain = ErrorOf(Write("i", images.substr(0, size)), labels);
    EXPECT_EQ(plain.code(), absl::StatusCode::kDataLoss) << plain;
    const absl::Status short_inside = ErrorOf(Write("i.gz", Gzip(images.substr(0, size))), labels);
    EXPECT_EQ(short_inside.code(), absl::StatusCode::kDataLoss) << short_inside;
  }
  const std::string packed = Gzip(images);
  for (size_t size = 0; size < packed.size(); ++size) {
    const absl::Status cut = ErrorOf(Write("i.gz", packed.substr(0, size)), labels);
    EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss) << size << cut;
    EXPECT_THAT(Text(cut), HasSubstr(dir_.Path("i.gz") + ": not a whole gzip file: "));
  }
}

TEST_F(IdxDatasetTest, AnyDamageOfAGzipFileIsFound) {
  std::string packed = Gzip(Idx({2, 2, 3}, Counting(12)));
  packed[packed.size() - 6] ^= 1;  // its checksum
  EXPECT_EQ(ErrorOf(Write("i.gz", packed), Labels()).code(), absl::StatusCode::kDataLoss);
}

TEST_F(IdxDatasetTest, PackedOrNotIsSeenFromTheBytes) {
  const std::string images = Idx({2, 2, 3}, Counting(12));
  EXPECT_TRUE(StatusOf(Write("unpacked.gz", images), Labels()).ok());
  EXPECT_TRUE(StatusOf(Write("packed", Gzip(images)), Labels()).ok());
}

TEST_F(IdxDatasetTest, AFileOfAnotherKindIsNamed) {
  EXPECT_THAT(Text(ErrorOf(Write("i.gz", "<!DOCTYPE html><html>"), Labels())),
              HasSubstr("i.gz: expected an IDX file, found a web page (HTML)"));
  EXPECT_THAT(Text(ErrorOf(Images(), Write("l", "{\"a\": 1}"))),
              HasSubstr("l: expected an IDX file, found text that begins with '{\"a\": 1}'"));
}

TEST_F(IdxDatasetTest, WhatIsLongerThanItsHeaderSaysIsRefused) {
  const std::string images = Idx({2, 2, 3}, Counting(13));
  EXPECT_THAT(
      Text(ErrorOf(Write("i", images), Labels())),
      HasSubstr(
          "i: IDX: expected 12 bytes after the header, as its shape [2, 2, 3] says, found 13"));
  EXPECT_THAT(Text(ErrorOf(Write("i.gz", Gzip(images)), Labels())), HasSubstr("found more"));
}

TEST_F(IdxDatasetTest, AHeaderThatPromisesMoreThanAGzipFileCanHoldTakesNoMemory) {
  const std::string huge = Idx({0xffffffff, 0xffffffff, 0x7}, "");
  EXPECT_THAT(Text(ErrorOf(Write("i.gz", Gzip(huge)), Labels())), HasSubstr("overflows"));
  const std::string large = Idx({1u << 31, 1u << 15, 1u << 10}, Counting(12));
  EXPECT_THAT(Text(ErrorOf(Write("i.gz", Gzip(large)), Labels())),
              HasSubstr("expected 72057594037927936 bytes after the header"));
}

TEST_F(IdxDatasetTest, WhatIsNoImageIsRefusedWithExpectedAndFound) {
  const std::string labels = Labels();
  EXPECT_THAT(Text(ErrorOf(Write("i", std::string("\x01\x02\x03\x04rest")), labels)),
              HasSubstr("not an IDX file: expected two zero bytes at its beginning, found 0x0102"));
  EXPECT_THAT(Text(ErrorOf(Write("i", Idx({2, 2, 3}, Counting(48), 0x0D)), labels)),
              HasSubstr("expected elements of type 0x08 (unsigned bytes), found type 0x0d"));
  EXPECT_THAT(Text(ErrorOf(Write("i", Idx({}, "")), labels)),
              HasSubstr("expected 1 to 4 dimensions, found 0"));
  EXPECT_THAT(Text(ErrorOf(Write("i", Idx({1, 1, 1, 2, 3}, Counting(6))), labels)),
              HasSubstr("expected 1 to 4 dimensions, found 5"));
  EXPECT_THAT(Text(ErrorOf(labels, labels)),
              HasSubstr("images: expected [N, H, W] or [N, C, H, W], found [2]"));
  EXPECT_THAT(Text(ErrorOf(Images(), Images())),
              HasSubstr("labels: expected [N], found [2, 2, 3]"));
  EXPECT_THAT(Text(ErrorOf(Write("i", Idx({2, 2, 2}, Counting(8))), labels)),
              HasSubstr("images: expected [N, ...] with 6 numbers per row, found [2, 1, 2, 2]"));
}

TEST_F(IdxDatasetTest, LabelsThatDoNotFitAreRefused) {
  EXPECT_THAT(
      Text(ErrorOf(Images(), Write("l", Idx({3}, {0, 1, 2})))),
      HasSubstr(
          "labels: expected int64 [2] (classes, one for each row of inputs), found uint8 [3]"));
  EXPECT_EQ(Text(ErrorOf(Images(), Write("l", Idx({2}, {0, 4})))),
            dir_.Path("l") + ": labels: row 1, byte offset 9: expected a class in [0, 4), found 4");
  InputSpec ignoring = kSpec;
  ignoring.ignored = 255;
  EXPECT_TRUE(StatusOf(Images(), Write("l", Idx({2}, "\x01\xff")), ignoring).ok());
  InputSpec numbers = kSpec;
  numbers.target_numbers = 1;
  EXPECT_THAT(Text(ErrorOf(Images(), Labels(), numbers)),
              HasSubstr("the model's loss takes numbers"));
  EXPECT_THAT(Text(OpenIdx({.images = {Images()}, .labels = {}}, kSpec).status()),
              HasSubstr("expected as many files of labels as of images, 1, found 0"));
}

TEST_F(IdxDatasetTest, AScaleThatLeavesFloat32IsRefused) {
  EXPECT_THAT(
      Text(OpenIdx({.images = {Images()}, .labels = {Labels()}, .std = 1e-300}, kSpec).status()),
      HasSubstr("the byte 1 becomes inf"));
}

TEST_F(IdxDatasetTest, AFileThatIsShortenedInUseIsNamed) {
  const auto dataset = Open(Images(), Labels());
  std::filesystem::resize_file(dir_.Path("images"), 20);
  const std::vector<int64_t> samples = {0};
  const absl::Status status = (*dataset)->Read(samples).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr(dir_.Path("images") + ": shortened while in use"));
}

TEST_F(IdxDatasetTest, WithoutLabelsImagesAloneAreEnough) {
  InputSpec spec = kSpec;
  spec.target_numbers = 4;  // of a model whose loss takes numbers
  const std::string images = Write("images", Idx({2, 2, 3}, Counting(12)));
  const auto dataset = OpenIdx({.images = {images}, .labels = {}}, spec, Labels::kIgnored);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::vector<int64_t> samples = {1};
  const auto batch = (*dataset)->Read(samples);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->inputs.sizes(), (at::IntArrayRef{1, 1, 2, 3}));
  EXPECT_FLOAT_EQ(batch->inputs.flatten()[0].item<float>(), 6 / 255.0);
  EXPECT_TRUE(batch->targets.equal(at::zeros({1, 4}, at::kFloat)));
}

}  // namespace
}  // namespace muster::data
