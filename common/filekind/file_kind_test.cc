#include "common/filekind/file_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

namespace muster::filekind {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kPointer[] =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 548105171\n";

std::string Int32s(const std::vector<int32_t>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4);
}

std::string Zip(const std::string& first_member) {
  std::string header("PK\x03\x04", 4);
  header.append(22, '\0');
  header += static_cast<char>(first_member.size());
  header.append(3, '\0');
  return header + first_member + "contents";
}

std::string LlmcHeader(int32_t magic) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = 1;
  header[2] = 100;
  return Int32s(header) + std::string(200, 'x');
}

std::string Text(std::optional<std::string> mismatch) { return mismatch.value_or("nothing"); }

TEST(FileKind, KindsAreKnownByTheirBeginning) {
  const std::vector<std::pair<std::string, Kind>> files = {
      {kPointer, Kind::kGitLfsPointer},
      {"/annex/objects/SHA256E-s12--ab.bin\n", Kind::kGitAnnexPointer},
      {"<!DOCTYPE html><html>", Kind::kWebPage},
      {"\xef\xbb\xbf\n  <HTML lang=en>", Kind::kWebPage},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied", Kind::kXml},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03rest", 14), Kind::kGzip},
      {"\x28\xb5\x2f\xfdrest", Kind::kZstandard},
      {std::string("\xfd\x37zXZ\0rest", 10), Kind::kXz},
      {"BZh91AY&SYrest", Kind::kBzip2},
      {Zip("a/b.txt"), Kind::kZip},
      {Zip("arr_0.npy"), Kind::kNpz},
      {Zip("archive/data.pkl"), Kind::kTorchArchive},
      {std::string("\x80\x04\x95\x10\0\0\0\0\0\0\0}q", 13), Kind::kPickle},
      {"\x93NUMPY\x01", Kind::kNpy},
      {std::string("\x40\0\0\0\0\0\0\0{\"a\":", 13), Kind::kSafetensors},
      {LlmcHeader(20240520), Kind::kLlmcTokens},
      {LlmcHeader(20240801), Kind::kLlmcTokens32},
      {std::string("MMIDIDX\0\0\1", 10), Kind::kMegatronIndex},
      {"PAR1\x15", Kind::kParquet},
      {"\x7f" "ELF\x02", Kind::kElf},
      {"Entry not found", Kind::kText},
      {"Gr\xc3\xbc\xc3\x9f", Kind::kText},
      {"Gr\xc3\xbc\xc3", Kind::kUnknown},
      {std::string(4095, 'a') + "\xc3\xbc", Kind::kText},
      {"", Kind::kUnknown},
      {std::string("\0\0\x08\x03", 4), Kind::kUnknown},
  };
  for (const auto& [beginning, kind] : files) {
    EXPECT_EQ(static_cast<int>(KindOf(beginning)), static_cast<int>(kind)) << beginning;
  }
}

TEST(FileKind, WhatIsWantedIsNoMismatch) {
  EXPECT_EQ(Mismatch("\x93NUMPY\x01", Wanted::kNpy), std::nullopt);
  EXPECT_EQ(Mismatch(Zip("archive/data.pkl"), Wanted::kTorchScript), std::nullopt);
  EXPECT_EQ(Mismatch(Zip("archive/data.pkl"), Wanted::kOptimizerState), std::nullopt);
  EXPECT_EQ(Mismatch("[[1, 2]]", Wanted::kJson), std::nullopt);
  EXPECT_EQ(Mismatch("name: x\n", Wanted::kJobFile), std::nullopt);
  EXPECT_EQ(Mismatch(std::string("\0\0\x08\x03\0\0\0\x02", 8), Wanted::kIdx), std::nullopt);
  // Tokens may be any bytes.
  EXPECT_EQ(Mismatch("just words, and nothing but words", Wanted::kTokens), std::nullopt);
}

TEST(FileKind, AMismatchSaysWhatItIsAndWhatToDo) {
  EXPECT_EQ(Text(Mismatch(kPointer, Wanted::kWeights)),
            "expected a safetensors file, found a git-lfs pointer (a text in place of a file of "
            "548105171 bytes): 'git lfs pull' in its repository fetches the file");
  for (const Wanted wanted :
       {Wanted::kTokens, Wanted::kNpy, Wanted::kSafetensorsRows, Wanted::kIdx, Wanted::kWeights,
        Wanted::kTorchScript, Wanted::kOptimizerState, Wanted::kPlugin, Wanted::kJson,
        Wanted::kJobFile, Wanted::kAnyInput}) {
    // JSON and job files are text, so only these kinds begin like another text.
    EXPECT_THAT(Text(Mismatch(kPointer, wanted)), HasSubstr("found a git-lfs pointer"));
    EXPECT_THAT(Text(Mismatch("<html>", wanted)), HasSubstr("found a web page (HTML): "));
  }
  EXPECT_THAT(Text(Mismatch("Entry not found\nx", Wanted::kSafetensorsRows)),
              HasSubstr("found text that begins with 'Entry not found': "));
  EXPECT_THAT(Text(Mismatch("\n\n  Entry not found\nx", Wanted::kSafetensorsRows)),
              HasSubstr("found text that begins with 'Entry not found': "));
  EXPECT_THAT(Text(Mismatch(LlmcHeader(20240520), Wanted::kTokens)),
              HasSubstr("llm.c, which begins with a header of 1024 bytes: 'tail -c +1025 FILE"));
  EXPECT_THAT(Text(Mismatch("\x80\x02}q", Wanted::kNpy)), HasSubstr("found a Python pickle"));
  EXPECT_EQ(Mismatch("\x80\x02}q", Wanted::kTokens), std::nullopt);
  EXPECT_THAT(Text(Mismatch(Zip("x.npy"), Wanted::kNpy)), HasSubstr("numpy.load(FILE)['NAME']"));
  EXPECT_THAT(Text(Mismatch("\x93NUMPY\x01", Wanted::kTokens)),
              HasSubstr("numpy.load(FILE).astype('<u2').tofile('train.bin')"));
  EXPECT_THAT(Text(Mismatch(Zip("archive/data.pkl"), Wanted::kWeights)),
              HasSubstr("safetensors.torch.save_file(torch.load(FILE, weights_only=True)"));
}

TEST(FileKind, NoNumbersAreTakenForAFileOfAnotherKind) {
  std::mt19937 random(1);
  for (const uint32_t vocabulary : {1u, 2u, 17u, 256u, 1000u, 50257u, 65536u}) {
    for (int file = 0; file < 300; ++file) {
      std::vector<uint16_t> tokens(1000);
      for (uint16_t& token : tokens) token = static_cast<uint16_t>(random() % vocabulary);
      const std::string bytes(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
      EXPECT_EQ(Mismatch(bytes, Wanted::kTokens), std::nullopt) << vocabulary;
      EXPECT_EQ(TextInPlaceOfTokens(bytes), std::nullopt) << vocabulary;
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string constant(4096, static_cast<char>(byte));
    EXPECT_EQ(Mismatch(constant, Wanted::kTokens), std::nullopt) << byte;
    EXPECT_EQ(TextInPlaceOfTokens(constant), std::nullopt) << byte;
  }
  // The first tokens of an llm.c header alone are valid tokens.
  EXPECT_EQ(Mismatch(Int32s({20240520, 1, 100}) + std::string(2000, 'x'), Wanted::kTokens),
            std::nullopt);
}

TEST(FileKind, EveryBeginningOfEveryLengthIsLookedAtSafely) {
  for (const std::string& whole :
       {std::string(kPointer), LlmcHeader(20240520), Zip("arr_0.npy"), Zip(std::string(200, 'n')),
        std::string("\x80\x04\x95\x10\0\0\0\0\0\0\0}q", 13)}) {
    for (size_t size = 0; size <= whole.size(); ++size) {
      const std::vector<uint8_t> exact(whole.begin(), whole.begin() + static_cast<long>(size));
      for (const Wanted wanted : {Wanted::kTokens, Wanted::kWeights, Wanted::kJson}) {
        Mismatch(exact.data(), exact.size(), wanted);
      }
    }
  }
}

TEST(FileKind, TextInPlaceOfTokensIsLikely) {
  const std::string text =
      "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n";
  EXPECT_THAT(Text(TextInPlaceOfTokens(text)),
              StartsWith("the file looks like text that begins with 'First Citizen:': 'muster data "
                         "pack --tokenizer bytes"));
  EXPECT_EQ(TextInPlaceOfTokens(text.substr(0, 40)), std::nullopt);
  std::string numbers;
  for (int i = 0; i < 100; ++i) numbers += std::to_string(i * 37) + (i % 10 == 9 ? "\n" : " ");
  EXPECT_THAT(Text(TextInPlaceOfTokens(numbers)), HasSubstr("numpy.fromstring("));
}

}  // namespace
}  // namespace muster::filekind
