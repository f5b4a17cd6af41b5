#include "common/secret/secret.h"

#include <gtest/gtest.h>

#include <string>

namespace muster::secret {
namespace {

// Python: hmac.new(bytes(range(32)), struct.pack("<Q", 3) + b"job" + struct.pack("<Q", 0),
//                  "sha256").hexdigest()
TEST(Mac, IsHmacSha256OfThePartsWithTheirLengths) {
  std::string key;
  for (char c = 0; c < 32; ++c) key += c;
  EXPECT_EQ(ToHex(Mac(key, {"job", ""})),
            "c42c903dca2fb2913c40c161a338ae3d3d7bf4b286b9736c86e2ede811bed424");
}

TEST(Mac, TellsApartPartsOfTheSameText) {
  EXPECT_NE(Mac("key", {"ab", "c"}), Mac("key", {"a", "bc"}));
  EXPECT_NE(Mac("key", {"abc"}), Mac("key", {"abc", ""}));
  EXPECT_NE(Mac("key", {"abc"}), Mac("other key", {"abc"}));
}

TEST(Equal, ComparesBytesAndLengths) {
  EXPECT_TRUE(Equal("", ""));
  EXPECT_TRUE(Equal(std::string("a\0b", 3), std::string("a\0b", 3)));
  EXPECT_FALSE(Equal(std::string("a\0b", 3), std::string("a\0c", 3)));
  EXPECT_FALSE(Equal("a", "ab"));
}

TEST(Hex, IsReadBack) {
  const std::string bytes = Random();
  EXPECT_EQ(bytes.size(), kBytes);
  EXPECT_EQ(*FromHex(ToHex(bytes)), bytes);
  for (const char* wrong : {"0", "0g", "00 "}) {
    EXPECT_EQ(FromHex(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
  EXPECT_NE(Random(), Random());
}

}  // namespace
}  // namespace muster::secret
