#include "worker/tensorboard/crc32c.h"

#include <array>

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

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t remainder = ~uint32_t{0};
  for (const char byte : bytes) {
    remainder = (remainder >> 8) ^ kTable[(remainder ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~remainder;
}

}  // namespace muster::tensorboard
