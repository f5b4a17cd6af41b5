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

// RFC 4231, test case 2.
TEST(Hmac, IsHmacSha256) {
  EXPECT_EQ(ToHex(Hmac("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
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

TEST(Seal, OnlyTheSameKeyAndContextUnsealIt) {
  const std::string key = Random(), other = Random();
  for (const std::string text : {"", "a", "a longer text than one block of the cipher"}) {
    const std::string sealed = Seal(key, "context", text);
    EXPECT_EQ(sealed.size(), text.size() + 28);
    EXPECT_EQ(Unseal(key, "context", sealed).value(), text);
    EXPECT_NE(Seal(key, "context", text), sealed) << "each has a nonce of its own";
    EXPECT_EQ(Unseal(other, "context", sealed).status().code(), absl::StatusCode::kUnauthenticated);
    EXPECT_FALSE(Unseal(key, "other", sealed).ok());
    for (size_t i = 0; i < sealed.size(); ++i) {
      std::string changed = sealed;
      changed[i] = static_cast<char>(changed[i] ^ 1);
      EXPECT_FALSE(Unseal(key, "context", changed).ok()) << i;
      EXPECT_FALSE(Unseal(key, "context", sealed.substr(0, i)).ok()) << i;
    }
  }
}

// Test case 16 of "The Galois/Counter Mode of Operation" (McGrew, Viega), with its nonce in
// `sealed`.
TEST(Seal, IsAes256Gcm) {
  const auto bytes = [](const std::string& hex) { return FromHex(hex).value(); };
  const std::string key = bytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  const std::string text = bytes(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
  const std::string context = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  const std::string sealed = bytes(
      "cafebabefacedbaddecaf888"
      "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
      "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
      "76fc6ece0f4e1768cddf8853bb2d551b");
  EXPECT_EQ(Unseal(key, context, sealed).value(), text);
}

}  // namespace
}  // namespace muster::secret
