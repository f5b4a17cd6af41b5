#include "worker/tensorboard/record.h"

#include <array>
#include <cstddef>

namespace muster::tensorboard {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> Table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[byte] = remainder;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = Table();

// Longer ones are never written.
constexpr uint64_t kLongest = uint64_t{64} << 20;

template <typename Number>
std::string Bytes(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

std::optional<std::string> Read(std::istream& file, size_t size) {
  std::string bytes(size, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) return std::nullopt;
  return bytes;
}

uint64_t NumberOf(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    number |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return number;
}

// Reads `size` bytes and their checksum.
std::optional<std::string> ReadChecked(std::istream& file, size_t size) {
  const auto bytes = Read(file, size);
  if (!bytes.has_value()) return std::nullopt;
  const auto checksum = Read(file, sizeof(uint32_t));
  if (!checksum.has_value() || NumberOf(*checksum) != MaskedCrc32c(*bytes)) return std::nullopt;
  return bytes;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t remainder = ~uint32_t{0};
  for (const char byte : bytes) {
    remainder = (remainder >> 8) ^ kTable[(remainder ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~remainder;
}

uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string Record(std::string_view data) {
  const std::string length = Bytes<uint64_t>(data.size());
  std::string record = length + Bytes(MaskedCrc32c(length));
  record += data;
  return record + Bytes(MaskedCrc32c(data));
}

std::optional<std::string> ReadRecord(std::istream& file) {
  const auto length = ReadChecked(file, sizeof(uint64_t));
  if (!length.has_value() || NumberOf(*length) > kLongest) return std::nullopt;
  return ReadChecked(file, NumberOf(*length));
}

}  // namespace muster::tensorboard
