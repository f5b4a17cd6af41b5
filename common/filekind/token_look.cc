#include "common/filekind/token_look.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"

namespace muster::filekind {
namespace {

// The least number of numbers for a result.
constexpr size_t kLeast = 64;
constexpr size_t kLeastDifferent = 8;
// A number beyond every vocabulary.
constexpr double kMostToken = 1 << 24;

using Numbers = std::vector<double>;

template <typename T>
Numbers Read(const uint8_t* data, size_t size, bool swapped = false) {
  Numbers numbers(size / sizeof(T));
  uint8_t bytes[sizeof(T)];
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::memcpy(bytes, data + i * sizeof(T), sizeof(T));
    if (swapped) std::reverse(bytes, bytes + sizeof(T));
    T number;
    std::memcpy(&number, bytes, sizeof(T));
    numbers[i] = static_cast<double>(number);
  }
  return numbers;
}

Numbers ReadTokens(const uint8_t* data, size_t size, size_t width) {
  return width == 2 ? Read<uint16_t>(data, size) : Read<uint32_t>(data, size);
}

bool AreTokens(const Numbers& numbers, double vocab_size) {
  return numbers.size() >= kLeast && std::all_of(numbers.begin(), numbers.end(), [&](double x) {
           return x >= 0 && x < vocab_size && x == std::floor(x);
         });
}

bool AreDifferent(const Numbers& numbers) {
  std::set<double> different;
  for (const double number : numbers) {
    different.insert(number);
    if (different.size() >= kLeastDifferent) return true;
  }
  return false;
}

// Every `step`-th number, from index `first` on.
Numbers Every(const Numbers& numbers, size_t step, size_t first) {
  Numbers chosen;
  for (size_t i = first; i < numbers.size(); i += step) chosen.push_back(numbers[i]);
  return chosen;
}

double Max(const Numbers& numbers) {
  return numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end());
}

std::string Remedy(const char* numpy_type, size_t width) {
  return absl::StrCat("in Python, numpy.fromfile(FILE, '", numpy_type, "').astype('<u", width,
                      "').tofile(NEW) writes them as they should be");
}

// Finds tokens of `wide` bytes: their upper parts are all 0, or almost.
std::optional<std::string> TooWide(const Numbers& tokens, size_t width, size_t wide) {
  const size_t step = wide / width;
  const Numbers low = Every(tokens, step, 0);
  double upper = 0;
  for (size_t part = 1; part < step; ++part) {
    const double max = Max(Every(tokens, step, part));
    // The upper half of a number below 2^20 is below 16.
    if (max > (part == 1 && width == 2 ? 15 : 0)) return std::nullopt;
    upper = std::max(upper, max);
  }
  if (low.size() < kLeast / 2 || !AreDifferent(low)) return std::nullopt;
  const auto beyond = std::count_if(low.begin(), low.end(), [&](double x) { return x > upper; });
  if (2 * static_cast<size_t>(beyond) < low.size()) return std::nullopt;
  return absl::StrCat(step == 2 ? "every second token is " : "three of four tokens are ",
                      upper > 0 ? absl::StrCat("at most ", upper) : "0", " in the first ",
                      tokens.size(), ": was the file written with ", wide,
                      " bytes for each token? Then ",
                      wide == 4 ? "'dtype: uint32' reads it" : Remedy("<i8", width));
}

std::optional<std::string> Floats(const uint8_t* data, size_t size, size_t width) {
  const auto looks = [](const Numbers& numbers) {
    return AreTokens(numbers, kMostToken) && AreDifferent(numbers);
  };
  const bool floats = looks(Read<float>(data, size));
  if (!floats && !looks(Read<double>(data, size))) return std::nullopt;
  return absl::StrCat("the file looks like whole numbers of type ", floats ? "float32" : "float64",
                      "; ", Remedy(floats ? "<f4" : "<f8", width));
}

// Finds big-endian tokens of a vocabulary that ends well below 65536. The first byte of each token
// is small, and the second is not.
std::optional<std::string> BigEndian(const uint8_t* data, size_t size) {
  constexpr size_t kEnough = 1024;
  constexpr double kMostHighByte = 200;
  if (size / 2 < kEnough) return std::nullopt;
  const Numbers bytes = Read<uint8_t>(data, size - size % 2);
  const Numbers first = Every(bytes, 2, 0), second = Every(bytes, 2, 1);
  if (Max(first) >= kMostHighByte || Max(second) <= Max(first) + 32 || !AreDifferent(second)) {
    return std::nullopt;
  }
  return absl::StrCat("the low byte of each token is at most ", Max(first), " in the first ",
                      second.size(), ", and the high byte is not: was the file written "
                      "big-endian? Then ", Remedy(">u2", 2));
}

struct Reading {
  Numbers numbers;
  std::string as;
  std::string next;
};

std::vector<Reading> OtherReadings(const uint8_t* data, size_t size, size_t width) {
  std::vector<Reading> readings;
  if (width == 2) {
    readings.push_back({Read<uint32_t>(data, size), "4 bytes each", "'dtype: uint32' reads them"});
    readings.push_back({Read<uint16_t>(data, size, /*swapped=*/true), "big-endian order",
                        Remedy(">u2", 2)});
  } else {
    readings.push_back({Read<uint16_t>(data, size), "2 bytes each", "'dtype: uint16' reads them"});
    readings.push_back({Read<uint32_t>(data, size, /*swapped=*/true), "big-endian order",
                        Remedy(">u4", 4)});
  }
  readings.push_back({Read<uint64_t>(data, size), "8 bytes each", Remedy("<i8", width)});
  readings.push_back({Read<float>(data, size), "type float32", Remedy("<f4", width)});
  readings.push_back({Read<double>(data, size), "type float64", Remedy("<f8", width)});
  readings.push_back({Read<uint8_t>(data, size), "1 byte each", Remedy("u1", width)});
  return readings;
}

}  // namespace

std::optional<std::string> DoubtAboutTokens(const uint8_t* data, size_t size, size_t width) {
  size = std::min(size, kTokenLook);
  if (size < kLeast * 2) return std::nullopt;
  if (const auto text = TextInPlaceOfTokens(
          {reinterpret_cast<const char*>(data), std::min(size, kLook)})) {
    return text;
  }
  if (const auto floats = Floats(data, size, width)) return floats;
  const Numbers tokens = ReadTokens(data, size, width);
  if (const auto wide = TooWide(tokens, width, 8)) return wide;
  if (width != 2) return std::nullopt;
  if (const auto wide = TooWide(tokens, width, 4)) return wide;
  return BigEndian(data, size);
}

std::optional<std::string> OtherReading(const uint8_t* data, size_t size, size_t width,
                                        int64_t vocab_size) {
  size = std::min(size, kTokenLook);
  const Numbers tokens = ReadTokens(data, size, width);
  const auto vocabulary = static_cast<double>(vocab_size);
  if (Max(tokens) < vocabulary) return std::nullopt;
  if (const auto text = TextInPlaceOfTokens(
          {reinterpret_cast<const char*>(data), std::min(size, kLook)})) {
    return text;
  }
  for (const Reading& reading : OtherReadings(data, size, width)) {
    // Every byte is a token of a vocabulary of 256.
    if (reading.as == "1 byte each" && vocab_size >= 256) continue;
    if (!AreTokens(reading.numbers, std::min(vocabulary, kMostToken)) ||
        !AreDifferent(reading.numbers)) {
      continue;
    }
    return absl::StrCat("the first ", reading.numbers.size(), " would be below it with ",
                        reading.as, ": ", reading.next);
  }
  return std::nullopt;
}

}  // namespace muster::filekind
