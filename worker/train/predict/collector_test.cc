#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/train/predict/predict.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

at::Tensor BytesOf(const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

struct Calls {
  std::vector<bool> goes_on;  // by call of Add
  absl::Status written;
};

// Calls Add for each element of `texts`, which has a text for each rank. The texts follow one
// another in the file. `fail_after`: the bytes that can be written.
std::vector<Calls> Collect(const std::vector<std::vector<std::string>>& texts, std::string* file,
                           size_t* largest, uint64_t most_bytes, size_t fail_after = 1 << 20) {
  const int world_size = static_cast<int>(texts[0].size());
  std::vector<Calls> calls(world_size);
  RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator&,
                           comm::Communicator&, comm::Communicator&) {
    size_t written = 0;
    Collector collector(
        &control, /*step=*/3,
        [&](uint64_t begin, std::string_view bytes) -> absl::Status {
          EXPECT_EQ(rank, 0);
          if (written + bytes.size() > fail_after) return absl::ResourceExhaustedError("full");
          written += bytes.size();
          *largest = std::max(*largest, bytes.size());
          if (file->size() < begin + bytes.size()) file->resize(begin + bytes.size(), '.');
          file->replace(begin, bytes.size(), bytes);
          return absl::OkStatus();
        },
        most_bytes);
    uint64_t begin = 0;
    for (const std::vector<std::string>& call : texts) {
      std::vector<FileRange> ranges;
      for (const std::string& text : call) {
        ranges.push_back({begin, text.size()});
        begin += text.size();
      }
      const auto goes_on = collector.Add(ranges, BytesOf(call[rank]));
      ASSERT_TRUE(goes_on.ok()) << goes_on.status();
      calls[rank].goes_on.push_back(*goes_on);
      if (!*goes_on) break;
    }
    calls[rank].written = collector.written();
  });
  return calls;
}

std::string Text(size_t size, char first) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>(first + i % 20);
  return text;
}

TEST(Collector, WhatTheRanksHaveBecomesOneFileInSmallPortions) {
  for (const int world_size : {1, 2, 3, 4}) {
    // Sizes that no portion divides, and size 0.
    std::vector<std::vector<std::string>> texts;
    std::string expected;
    for (size_t call = 0; call < 4; ++call) {
      texts.emplace_back();
      for (int rank = 0; rank < world_size; ++rank) {
        const size_t size = (call * 37 + rank * 101) % 203;
        texts.back().push_back(Text(size, static_cast<char>('A' + rank)));
        expected += texts.back().back();
      }
    }
    for (const uint64_t most : {1, 48, 1 << 20}) {
      SCOPED_TRACE(absl::StrCat(world_size, " ranks, ", most, " bytes"));
      std::string file;
      size_t largest = 0;
      const auto calls = Collect(texts, &file, &largest, most);
      EXPECT_EQ(file, expected);
      for (const Calls& of_rank : calls) {
        EXPECT_EQ(of_rank.goes_on, std::vector<bool>(4, true));
        EXPECT_TRUE(of_rank.written.ok());
      }
    }
  }
}

TEST(Collector, WhatIsReceivedAtATimeIsBounded) {
  // Rank 0 has no bytes, so all bytes that it writes were received.
  const std::vector<std::vector<std::string>> texts = {{"", Text(5000, 'A'), Text(3000, 'a')}};
  std::string file;
  size_t largest = 0;
  Collect(texts, &file, &largest, /*most_bytes=*/256);
  EXPECT_EQ(file, texts[0][1] + texts[0][2]);
  EXPECT_EQ(largest, 128u) << "of each of the two others";
}

TEST(Collector, AllRanksStopInTheSameCallAfterRank0CouldNotWrite) {
  std::vector<std::vector<std::string>> texts(20, {Text(10, 'A'), Text(64, 'a'), Text(64, 'b')});
  for (const size_t fail_after : {0, 5, 100, 300}) {
    std::string file;
    size_t largest = 0;
    const auto calls = Collect(texts, &file, &largest, /*most_bytes=*/32, fail_after);
    EXPECT_EQ(calls[0].written.code(), absl::StatusCode::kResourceExhausted);
    for (const Calls& of_rank : calls) {
      EXPECT_EQ(of_rank.goes_on, calls[0].goes_on);
      EXPECT_FALSE(of_rank.goes_on.back());
      EXPECT_LE(of_rank.goes_on.size(), fail_after / 138 + 2);
    }
    EXPECT_TRUE(calls[1].written.ok());
  }
}

}  // namespace
}  // namespace muster::train
