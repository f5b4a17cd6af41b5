#include "common/ids/ids.h"

#include <sys/random.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace muster {

std::string NewUuid() {
  std::array<unsigned char, 16> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  std::string uuid;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", bytes[i]);
    uuid += hex;
  }
  return uuid;
}

}  // namespace muster
