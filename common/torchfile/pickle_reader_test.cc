#include "common/torchfile/pickle_reader.h"

#include <string>

#include "common/torchfile/pickle_document.h"
#include "common/torchfile/pickle_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::torchfile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_literals;
using Kind = PickleDocument::Kind;

std::string State() {
  PickleWriter pickle;
  pickle.BeginDict();
  pickle.Text("state");
  pickle.BeginDict();
  pickle.Int(0);
  pickle.Float32Tensor("3", {2, 3});
  pickle.EndDict();
  pickle.Text("betas");
  pickle.BeginTuple();
  pickle.Float(0.5);
  pickle.Bool(true);
  pickle.None();
  pickle.EndTuple();
  pickle.EndDict();
  return pickle.Finish();
}

std::string Error(const std::string& bytes) {
  const auto document = ReadPickle(bytes);
  EXPECT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument) << document.status();
  return std::string(document.status().message());
}

TEST(PickleReader, ReadsWhatTheWriterWrites) {
  const auto document = ReadPickle(State());
  ASSERT_TRUE(document.ok()) << document.status();
  const auto& nodes = document->nodes;
  const auto& root = nodes[document->root];
  ASSERT_EQ(root.kind, Kind::kDict);
  ASSERT_EQ(root.items.size(), 4);
  EXPECT_EQ(nodes[root.items[0]].text, "state");
  const auto& state = nodes[root.items[1]];
  ASSERT_EQ(state.items.size(), 2);
  EXPECT_EQ(nodes[state.items[0]].integer, 0);
  const auto& tensor = nodes[state.items[1]];
  ASSERT_EQ(tensor.kind, Kind::kTensor);
  const TensorValue& value = document->tensors[tensor.tensor];
  EXPECT_EQ(value.storage, "3");
  EXPECT_EQ(value.storage_elements, 6);
  EXPECT_THAT(value.shape, ElementsAre(2, 3));
  EXPECT_THAT(value.strides, ElementsAre(3, 1));
  const auto& betas = nodes[root.items[3]];
  ASSERT_EQ(betas.kind, Kind::kTuple);
  ASSERT_EQ(betas.items.size(), 3);
  EXPECT_EQ(nodes[betas.items[0]].number, 0.5);
  EXPECT_EQ(nodes[betas.items[1]].kind, Kind::kBool);
  EXPECT_EQ(nodes[betas.items[2]].kind, Kind::kNone);
}

TEST(PickleReader, EveryTruncationIsRefused) {
  const std::string whole = State();
  for (size_t size = 0; size < whole.size(); ++size) Error(whole.substr(0, size));
  Error(whole + ".");
}

// The result for every flipped bit is a value or an error. AddressSanitizer finds more with this
// test.
TEST(PickleReader, EveryBitFlipEndsInAValueOrAnError) {
  const std::string whole = State();
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    const auto document = ReadPickle(bytes);
    if (document.ok()) EXPECT_LT(document->root, document->nodes.size());
  }
}

TEST(PickleReader, WhatIsNoPlainValueIsNamed) {
  EXPECT_THAT(Error("cos\nsystem\nX\x02\x00\x00\x00ls\x85R."s),
              HasSubstr("'os system' is not allowed"));
  EXPECT_THAT(Error("ctorch\nFloatStorage\n."s), HasSubstr("expected a plain value"));
  EXPECT_THAT(Error("i"), HasSubstr("opcode 105 is not for plain values"));
  EXPECT_THAT(Error("\x80\x09N."s), HasSubstr("protocol 9"));
}

TEST(PickleReader, ValuesThatContainThemselvesOrAreNestedTooDeeplyAreRefused) {
  EXPECT_THAT(Error("]q\x00h\x00"
                    "a."s),
              HasSubstr("contains itself"));
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "]";
  for (int i = 0; i < 199; ++i) deep += "a";
  EXPECT_THAT(Error(deep + "."), HasSubstr("nested deeper than 100"));
}

TEST(PickleReader, ATensorLiesInItsStorage) {
  const std::string whole = State();
  std::string large = whole;
  // The number of elements of the storage, after its device.
  const size_t at = large.find("cpuJ") + 4;
  large[at] = 5;
  EXPECT_THAT(Error(large), HasSubstr("reaches to element 5 of a storage of 5"));
}

}  // namespace
}  // namespace muster::torchfile
