#include "worker/data/npy_dataset.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/eq.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/notes.h"
#include "worker/data/npy.h"

namespace muster::data {
namespace {

using std::string_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr InputSpec kClasses{.kind = InputSpec::Kind::kRows, .row_elements = 4, .classes = 3};
constexpr InputSpec kNumbers{
    .kind = InputSpec::Kind::kRows, .row_elements = 4, .target_numbers = 2};

// A file as NumPy writes it: the header is padded so that the data begin at a multiple of 64.
std::string Npy(const std::string& header, const std::string& data, int version = 1) {
  const size_t start = version == 1 ? 10 : 12;
  std::string text = header;
  while ((start + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (size_t i = 0; i < start - 8; ++i) file += static_cast<char>(text.size() >> (8 * i));
  return file + text + data;
}

std::string Header(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': " + descr + ", 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }";
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

class NpyDatasetTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    EXPECT_TRUE(files::WriteAtomically(dir_.Path(name), bytes).ok());
    return dir_.Path(name);
  }
  // A file with two rows [2, 2] of consecutive numbers.
  std::string Inputs(int version = 1) {
    return Write("inputs.npy", Npy(Header("'<f4'", "(2, 2, 2)"),
                                   Bytes<float>({0, 1, 2, 3, 4, 5, 6, 7}), version));
  }
  std::string Labels() {
    return Write("labels.npy", Npy(Header("'<i8'", "(2,)"), Bytes<int64_t>({2, 0})));
  }
  absl::Status ErrorOf(const std::string& inputs, const std::string& labels,
                       const InputSpec& spec = kClasses) {
    const auto dataset = OpenNpy({{inputs}, {labels}}, spec);
    EXPECT_FALSE(dataset.ok());
    return dataset.status();
  }
  std::string ErrorOfInputs(const std::string& file) {
    return std::string(ErrorOf(Write("x.npy", file), Labels()).message());
  }

  files::TempDir dir_;
};

TEST_F(NpyDatasetTest, EveryVersionOfTheFormatIsRead) {
  for (const int version : {1, 2, 3}) {
    const auto dataset = OpenNpy({{Inputs(version)}, {Labels()}}, kClasses);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const std::vector<int64_t> samples = {1, 0};
    const auto batch = (*dataset)->Read(samples);
    EXPECT_EQ(batch->inputs.sizes(), (at::IntArrayRef{2, 2, 2}));
    EXPECT_EQ(batch->inputs[0][1][1].item<float>(), 7);
    EXPECT_EQ(batch->inputs[1][0][1].item<float>(), 1);
    EXPECT_EQ(batch->targets[1].item<int64_t>(), 2);
  }
}

TEST_F(NpyDatasetTest, TargetsMayBeNumbers) {
  const std::string labels =
      Write("y.npy", Npy(Header("'<f4'", "(2, 2)"), Bytes<float>({1.5, 2, 3, -4})));
  const auto dataset = OpenNpy({{Inputs()}, {labels}}, kNumbers);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::vector<int64_t> samples = {1};
  const auto batch = (*dataset)->Read(samples);
  EXPECT_EQ(batch->targets.sizes(), (at::IntArrayRef{1, 2}));
  EXPECT_EQ(batch->targets[0][1].item<float>(), -4);
  // One number for each row may be given as a list of numbers.
  InputSpec one = kNumbers;
  one.target_numbers = 1;
  const std::string narrow = Write("z.npy", Npy(Header("'<f4'", "(2,)"), Bytes<float>({5, 6})));
  EXPECT_EQ((*OpenNpy({{Inputs()}, {narrow}}, one))->Read(samples)->targets.sizes(),
            (at::IntArrayRef{1, 1}));
  EXPECT_THAT(
      std::string(ErrorOf(Inputs(), Labels(), kNumbers).message()),
      HasSubstr(
          "expected float32 [2, 2] (numbers, one row for each row of inputs), found int64 [2]; "
          ".astype('float32') converts them"));
  EXPECT_THAT(std::string(ErrorOf(Inputs(), labels).message()),
              HasSubstr("labels: expected int64 [2] (classes, one for each row of inputs), found "
                        "float32 [2, 2]; .astype('int64') converts them"));
}

TEST_F(NpyDatasetTest, OtherFloatsAndWholeNumbersAreConvertedAndNoted) {
  const std::string inputs =
      Write("x.npy", Npy(Header("'<f8'", "(2, 4)"), Bytes<double>({0.1, 1, 2, 3, 4, 5, 6, 7})));
  const std::string labels = Write("y.npy", Npy(Header("'<i4'", "(2,)"), Bytes<int32_t>({2, 1})));
  const auto dataset = OpenNpy({{inputs, inputs}, {labels, labels}}, kClasses);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE((*dataset)->Check({}).ok());
  const std::vector<int64_t> samples = {1, 0};
  const auto batch = (*dataset)->Read(samples);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->inputs[1][0].item<float>(), 0.1f);
  EXPECT_EQ(batch->inputs[0][3].item<float>(), 7);
  EXPECT_EQ(batch->targets[0].item<int64_t>(), 1);
  EXPECT_THAT(
      (*dataset)->notes(),
      ElementsAre(
          Note{Note::Kind::kCast, inputs + " and 1 more: inputs: float64 is read as float32"},
          Note{Note::Kind::kCast, labels + " and 1 more: labels: int32 is read as int64"}));
  EXPECT_TRUE((*OpenNpy({{Inputs()}, {Labels()}}, kClasses))->notes().empty());
}

TEST_F(NpyDatasetTest, FortranOrderIsReadAndNoted) {
  // The rows [2, 2] are 0 1 2 3 and 4 5 6 7.
  const std::string inputs = Write("x.npy", Npy(Header("'<f4'", "(2, 2, 2)", /*fortran=*/true),
                                                Bytes<float>({0, 4, 2, 6, 1, 5, 3, 7})));
  const auto dataset = OpenNpy({{inputs}, {Labels()}}, kClasses);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::vector<int64_t> samples = {1, 0};
  const auto batch = (*dataset)->Read(samples);
  const at::Tensor flat = batch->inputs.flatten();
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(flat[i].item<int64_t>(), (i + 4) % 8);
  ASSERT_EQ((*dataset)->notes().size(), 1u);
  EXPECT_THAT((*dataset)->notes()[0].text, HasSubstr("inputs: in Fortran order"));
}

TEST_F(NpyDatasetTest, NumbersThatFloat32CannotHoldAreRefusedWhereTheyAre) {
  const std::string inputs = Write("x.npy", Npy(Header("'<f8'", "(2, 4)", /*fortran=*/true),
                                                Bytes<double>({0, 1, 2, 3, 4, 1e300, 6, 7})));
  const std::vector<int64_t> samples = {1};
  const auto dataset = OpenNpy({{inputs}, {Labels()}}, kClasses);
  EXPECT_THAT(std::string((*dataset)->Read(samples).status().message()),
              HasSubstr("inputs: row 1, byte offset 168: expected numbers that float32 can hold, "
                        "found 1e+300"));
}

TEST_F(NpyDatasetTest, EveryTruncationIsRefused) {
  const std::string file =
      Npy(Header("'<f4'", "(2, 2, 2)"), Bytes<float>({0, 1, 2, 3, 4, 5, 6, 7}));
  for (size_t size = 0; size < file.size(); ++size) {
    const absl::Status status = ErrorOf(Write("x.npy", file.substr(0, size)), Labels());
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << status;
  }
  EXPECT_THAT(
      ErrorOfInputs(file.substr(0, file.size() - 1)),
      HasSubstr(
          "x.npy: inputs: expected 32 bytes after the header, as '<f4' [2, 2, 2] takes, found 31"));
  EXPECT_THAT(ErrorOfInputs(file + "x"), HasSubstr("found 33"));
}

TEST_F(NpyDatasetTest, WhatIsNotReadIsRefusedClearly) {
  const std::string data(32, '\0');
  EXPECT_THAT(ErrorOfInputs(Npy(Header("'<c8'", "(2, 2, 1)"), data)),
              HasSubstr("expected dtype '<f4' (float32), '<f8' or '<f2', found '<c8'; in Python, "
                        "numpy.save('new.npy', numpy.load(FILE).astype('<f4')) converts it"));
  EXPECT_THAT(ErrorOfInputs(Npy(Header("'|u1'", "(2, 2, 2)"), data)),
              HasSubstr("astype('<f4')) converts it (divide by 255 for pixels from 0 to 1)"));
  EXPECT_THAT(ErrorOfInputs(Npy(Header("'>f4'", "(2, 2, 2)"), data)),
              HasSubstr("found '>f4' (big endian); in Python"));
  EXPECT_THAT(ErrorOfInputs(Npy(Header("'|O'", "(2,)"), data)),
              HasSubstr("found '|O' (Python objects); in Python, numpy.save('new.npy', "
                        "numpy.load(FILE, allow_pickle=True)"));
  EXPECT_THAT(ErrorOfInputs(Npy(Header("[('a', '<f4')]", "(2,)"), data)),
              HasSubstr("one of several fields"));
  EXPECT_THAT(ErrorOfInputs(Npy(Header("'<f4'", "()"), std::string(4, '\0'))),
              HasSubstr("inputs: expected [N, ...] with 4 numbers per row, found []"));
  EXPECT_THAT(ErrorOfInputs("PK\x03\x04zip"), HasSubstr("not a .npy file"));
  EXPECT_THAT(ErrorOfInputs("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("x.npy: expected a .npy file, found a git-lfs pointer"));
  EXPECT_THAT(ErrorOfInputs(Npy(Header("'<f4'", "(2, 2, 2)"), data, 4)),
              HasSubstr("expected format version 1.0, 2.0 or 3.0, found 4.0"));
  EXPECT_THAT(std::string(ErrorOf(Inputs(), Write("y.npy", Npy(Header("'>i4'", "(2,)"),
                                                               std::string(8, '\0'))))
                              .message()),
              HasSubstr("labels: expected dtype '<i8' (int64), another integer but uint64, or "
                        "'<f4', found '>i4' (big endian); in Python"));
  EXPECT_THAT(std::string(OpenNpy({{Inputs()}, {}}, kClasses).status().message()),
              HasSubstr("expected as many files of labels as of inputs, 1, found 0"));
}

TEST_F(NpyDatasetTest, AStrangeHeaderIsRefused) {
  const std::string strange[] = {
      "",
      "{}",
      "[]",
      "{'descr': '<f4'}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2)} + 1",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, -2)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2.0)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2 2 2)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
      "{'descr': '<f4', 'fortran_order': Perhaps, 'shape': (2, 2, 2)}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2), 'more': 1}",
      "{'descr': '<f4, 'fortran_order': False, 'shape': (2, 2, 2)}",
      "{'descr': '<\nf4', 'fortran_order': False, 'shape': (2, 2, 2)}",
  };
  for (const std::string& header : strange) {
    const absl::Status status =
        ErrorOf(Write("x.npy", Npy(header, std::string(32, '\0'))), Labels());
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << header << "\n" << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("not a whole .npy file: the header: expected"))
        << header;
  }
  EXPECT_THAT(ErrorOfInputs(Npy(Header("'<f4'", "(4611686018427387904, 4611686018427387904)"), "")),
              HasSubstr("expected more than 2^64 bytes"));
  std::string many = "(";
  for (int i = 0; i < 1000; ++i) many += "1,";
  EXPECT_THAT(ErrorOfInputs(Npy(Header("'<f4'", many + ")"), "")),
              HasSubstr("too many dimensions"));
}

TEST_F(NpyDatasetTest, NumbersThatAreNotFiniteAreFoundWhereverTheyAre) {
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (size_t at = 0; at < 8; ++at) {
      std::vector<float> numbers = {0, 1, 2, 3, 4, 5, 6, 7};
      numbers[at] = bad;
      const std::string path = Write("x.npy", Npy(Header("'<f4'", "(2, 4)"), Bytes(numbers)));
      const auto dataset = OpenNpy({{path}, {Labels()}}, kClasses);
      ASSERT_TRUE(dataset.ok()) << dataset.status();
      const std::vector<int64_t> good = {1 - static_cast<int64_t>(at / 4)};
      EXPECT_TRUE((*dataset)->Read(good).ok());
      const std::vector<int64_t> both = {0, 1};
      const absl::Status status = (*dataset)->Read(both).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(path + ": inputs: row " + std::to_string(at / 4) + ", byte offset " +
                            std::to_string(128 + 4 * at) + ": expected finite numbers, found "));
    }
  }
}

TEST_F(NpyDatasetTest, TargetsThatAreNotFiniteAreFound) {
  const std::string labels =
      Write("y.npy", Npy(Header("'<f4'", "(2, 2)"), Bytes<float>({1, 2, 3, std::nanf("")})));
  const auto dataset = OpenNpy({{Inputs()}, {labels}}, kNumbers);
  const std::vector<int64_t> samples = {1};
  EXPECT_THAT(std::string((*dataset)->Read(samples).status().message()),
              HasSubstr("labels: row 1, byte offset 140: expected finite numbers, found nan"));
}

TEST_F(NpyDatasetTest, WithoutLabelsTargetsAreZerosAndNoFileOfLabelsIsRead) {
  for (const std::vector<std::string>& labels :
       {std::vector<std::string>{}, {Write("labels.npy", "no array")}}) {
    const auto dataset = OpenNpy({{Inputs()}, labels}, kClasses, data::Labels::kIgnored);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_TRUE((*dataset)->Check({}).ok());
    const std::vector<int64_t> samples = {1, 0};
    const auto batch = (*dataset)->Read(samples);
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_EQ(batch->inputs.flatten()[0].item<float>(), 4);
    EXPECT_TRUE(batch->targets.equal(at::zeros({2}, at::kLong)));
  }
  const std::vector<int64_t> samples = {0};
  EXPECT_TRUE((*OpenNpy({{Inputs()}, {}}, kNumbers, data::Labels::kIgnored))
                  ->Read(samples)
                  ->targets.equal(at::zeros({1, 2}, at::kFloat)));
}

// A model with the inputs `tokens` [2] and `mask` [2], and classes as targets.
InputSpec ByName() {
  return {.kind = InputSpec::Kind::kArrays,
          .classes = 3,
          .arrays = {{.name = "tokens", .type = at::kLong, .shape = {2}, .below = 7},
                     {.name = "mask", .type = at::kBool, .shape = {2}}}};
}

TEST_F(NpyDatasetTest, ArraysByNameAreTheInputsOfTheModelInItsOrder) {
  const std::string tokens =
      Write("tokens.npy", Npy(Header("'<i4'", "(2, 2)"), Bytes<int32_t>({1, 2, 3, 6})));
  const std::string more =
      Write("more.npy", Npy(Header("'<i8'", "(1, 2)"), Bytes<int64_t>({5, 4})));
  const std::string mask = Write("mask.npy", Npy(Header("'|b1'", "(2, 2)"), "\1\1\1\0"s));
  const std::string one = Write("one.npy", Npy(Header("'|b1'", "(1, 2)"), "\0\1"s));
  const std::string label = Write("label.npy", Npy(Header("'<i8'", "(1,)"), Bytes<int64_t>({1})));
  const NpyOptions files = {.labels = {Labels(), label},
                            .arrays = {{"mask", {mask, one}}, {"tokens", {tokens, more}}}};
  const auto dataset = OpenNpy(files, ByName());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 3);
  EXPECT_TRUE((*dataset)->Check({}).ok());
  const std::vector<int64_t> samples = {2, 1};
  const auto batch = (*dataset)->Read(samples);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_TRUE(batch->inputs.equal(at::tensor({5, 4, 3, 6}, at::kLong).view({2, 2})));
  EXPECT_TRUE(batch->further.at(0).equal(at::tensor({0, 1, 1, 0}, at::kLong).view({2, 2}).eq(1)));
  EXPECT_TRUE(batch->targets.equal(at::tensor({1, 0}, at::kLong)));
}

TEST_F(NpyDatasetTest, ArraysThatDoNotFitTheModelAreRefused) {
  const std::string tokens =
      Write("tokens.npy", Npy(Header("'<i8'", "(2, 2)"), Bytes<int64_t>({1, 2, 3, 6})));
  const std::string mask = Write("mask.npy", Npy(Header("'|b1'", "(2, 2)"), "\1\1\1\0"s));
  const auto error = [](const NpyOptions& files, const InputSpec& spec) {
    const absl::Status status = OpenNpy(files, spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  NpyOptions good = {.labels = {Labels()}, .arrays = {{"tokens", {tokens}}, {"mask", {mask}}}};
  EXPECT_TRUE(OpenNpy(good, ByName()).ok());
  NpyOptions files = good;
  files.arrays[1].name = "masks";
  EXPECT_EQ(error(files, ByName()),
            "arrays: expected the model's inputs 'tokens', 'mask', found 'masks', 'tokens'");
  files = good;
  files.labels.clear();
  EXPECT_EQ(error(files, ByName()), "expected as many files of labels as of tokens, 1, found 0");
  files = good;
  files.arrays[1].paths.push_back(mask);
  EXPECT_EQ(error(files, ByName()), "expected as many files of mask as of tokens, 1, found 2");
  files = good;
  files.arrays[1].paths = {tokens};
  EXPECT_THAT(std::string((*OpenNpy(files, ByName()))->Check({}).message()),
              HasSubstr("mask: row 0, byte offset 136: expected a whole number from 0 to 1"));
  EXPECT_EQ(error({.inputs = {tokens}, .labels = {Labels()}}, ByName()),
            "the model takes its inputs by name; expected `arrays`, found `inputs`");
  EXPECT_EQ(error(good, kClasses), "the model takes one input; expected `inputs`, found `arrays`");
  InputSpec loss = ByName();
  loss.own_loss = true;
  EXPECT_THAT(error(good, loss), HasSubstr("labels: found files, but the model returns its loss"));
  good.labels.clear();
  EXPECT_TRUE(OpenNpy(good, loss).ok());
  EXPECT_TRUE(OpenNpy(good, ByName(), data::Labels::kIgnored).ok());
}

TEST(NpyHeader, WhatIsMadeIsReadAgain) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3}, {0, 7}, {2, 17, 50257}, {1234567890123, 1, 1, 1, 1, 1, 1, 1}}) {
    const std::string header = MakeNpyHeader("<i8", shape);
    EXPECT_EQ(header.size() % 64, 0u);
    const auto read =
        ParseNpyHeader(reinterpret_cast<const uint8_t*>(header.data()), header.size(), "made.npy");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->descr, "<i8");
    EXPECT_FALSE(read->fortran_order);
    EXPECT_EQ(read->shape, shape);
    EXPECT_EQ(read->data_offset, header.size());
  }
}

}  // namespace
}  // namespace muster::data
