#include "common/filekind/token_look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace muster::filekind {
namespace {

using ::testing::HasSubstr;

template <typename T>
class File {
 public:
  explicit File(const std::vector<T>& numbers) : numbers_(numbers) {}

  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(numbers_.data()); }
  size_t size() const { return numbers_.size() * sizeof(T); }

  std::string Doubt(size_t width) const {
    return DoubtAboutTokens(data(), size(), width).value_or("none");
  }
  std::string Other(size_t width, int64_t vocab_size) const {
    return OtherReading(data(), size(), width, vocab_size).value_or("none");
  }

 private:
  const std::vector<T> numbers_;
};

template <typename T>
std::vector<T> Random(uint64_t vocabulary, size_t count = 5000) {
  std::mt19937_64 random(vocabulary);
  std::vector<T> numbers(count);
  for (T& number : numbers) number = static_cast<T>(random() % vocabulary);
  return numbers;
}

std::vector<uint16_t> Swapped(std::vector<uint16_t> numbers) {
  for (uint16_t& number : numbers) number = static_cast<uint16_t>(number << 8 | number >> 8);
  return numbers;
}

TEST(TokenLook, TokensOfAnotherWidthAreDoubted) {
  for (const uint64_t vocabulary : {16u, 256u, 50257u}) {
    EXPECT_THAT(File(Random<uint32_t>(vocabulary)).Doubt(2),
                HasSubstr("every second token is 0 in the first 10000: was the file written with 4 "
                          "bytes for each token? Then 'dtype: uint32' reads it"))
        << vocabulary;
    EXPECT_THAT(File(Random<int64_t>(vocabulary)).Doubt(2),
                HasSubstr("three of four tokens are 0 in the first 20000: was the file written "
                          "with 8 bytes for each token?"));
    EXPECT_THAT(File(Random<int64_t>(vocabulary)).Doubt(4),
                HasSubstr("numpy.fromfile(FILE, '<i8').astype('<u4').tofile(NEW)"));
  }
  // The upper half of each token is 0 or 1.
  EXPECT_THAT(File(Random<uint32_t>(128256)).Doubt(2),
              HasSubstr("every second token is at most 1 in the first 10000"));
}

TEST(TokenLook, TokensOfAnotherTypeAreDoubted) {
  EXPECT_THAT(File(Random<float>(50257)).Doubt(2), HasSubstr("whole numbers of type float32"));
  EXPECT_THAT(File(Random<double>(50257)).Doubt(2), HasSubstr("whole numbers of type float64"));
  EXPECT_THAT(File(Random<double>(256)).Doubt(4), HasSubstr("astype('<u4')"));
}

TEST(TokenLook, BigEndianTokensAreDoubted) {
  for (const uint64_t vocabulary : {256u, 32000u, 50257u}) {
    EXPECT_THAT(File(Swapped(Random<uint16_t>(vocabulary))).Doubt(2), HasSubstr("big-endian"))
        << vocabulary;
  }
}

TEST(TokenLook, TokensAreNotDoubted) {
  for (const uint64_t vocabulary :
       {1u, 2u, 3u, 5u, 10u, 16u, 17u, 50u, 65u, 200u, 256u, 1000u, 50257u, 65536u}) {
    EXPECT_EQ(File(Random<uint16_t>(vocabulary)).Doubt(2), "none") << vocabulary;
    EXPECT_EQ(File(Random<uint32_t>(vocabulary)).Doubt(4), "none") << vocabulary;
  }
  for (const uint64_t vocabulary : {128256u, 262144u, 1u << 20}) {
    EXPECT_EQ(File(Random<uint32_t>(vocabulary)).Doubt(4), "none") << vocabulary;
  }
  // Constant, alternating, counting, and sorted tokens; much padding; a separator after each token.
  for (const uint16_t token : {0, 1, 15, 255, 256, 8224, 65535}) {
    EXPECT_EQ(File(std::vector<uint16_t>(3000, token)).Doubt(2), "none") << token;
    EXPECT_EQ(File(std::vector<uint32_t>(3000, token)).Doubt(4), "none") << token;
  }
  std::vector<uint16_t> alternating(3000), counting(3000), padded(3000);
  for (size_t i = 0; i < counting.size(); ++i) {
    alternating[i] = i % 2 == 0 ? 7 : 0;
    counting[i] = static_cast<uint16_t>(i);
    padded[i] = i < 50 ? static_cast<uint16_t>(i * 37) : 0;
  }
  for (const auto& tokens : {alternating, counting, padded}) {
    EXPECT_EQ(File(tokens).Doubt(2), "none");
  }
  auto sorted = Random<uint16_t>(50257);
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(File(sorted).Doubt(2), "none");
  // Frequent tokens with low numbers, as in a language.
  auto frequent = Random<uint16_t>(65536);
  for (uint16_t& token : frequent) token = static_cast<uint16_t>(50256 / (1 + token % 5000));
  EXPECT_EQ(File(frequent).Doubt(2), "none");
}

TEST(TokenLook, ShortFilesAreNotDoubted) {
  for (size_t count : {0, 1, 10, 31}) {
    EXPECT_EQ(File(Random<uint32_t>(50257, count)).Doubt(2), "none") << count;
  }
}

TEST(TokenLook, ATokenBeyondTheVocabularyIsExplainedByAnotherReading) {
  EXPECT_EQ(File(Random<uint16_t>(50257)).Other(4, 50257),
            "the first 5000 would be below it with 2 bytes each: 'dtype: uint16' reads them");
  EXPECT_THAT(File(Random<uint32_t>(128256)).Other(2, 200),
              HasSubstr("none"));  // no reading fits a vocabulary of 200
  EXPECT_THAT(File(Swapped(Random<uint16_t>(50257))).Other(2, 50257),
              HasSubstr("with big-endian order"));
  EXPECT_THAT(File(Random<float>(50257)).Other(4, 50257), HasSubstr("with type float32"));
  EXPECT_THAT(File(Random<uint8_t>(65)).Other(2, 65), HasSubstr("with 1 byte each"));
  EXPECT_THAT(File(std::vector<uint8_t>(100, 'a')).Other(2, 256), HasSubstr("none"));
}

TEST(TokenLook, OneWrongTokenHasNoOtherReading) {
  for (const uint64_t vocabulary : {100u, 256u, 1000u, 50257u}) {
    auto tokens = Random<uint16_t>(vocabulary);
    EXPECT_EQ(File(tokens).Other(2, static_cast<int64_t>(vocabulary)), "none");
    tokens[100] = 65535;
    EXPECT_EQ(File(tokens).Other(2, static_cast<int64_t>(vocabulary)), "none") << vocabulary;
  }
}

}  // namespace
}  // namespace muster::filekind
