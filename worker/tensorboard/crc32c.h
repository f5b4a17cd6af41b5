// CRC-32C (Castagnoli), as RFC 3720 defines it in B.4.
#ifndef MUSTER_WORKER_TENSORBOARD_CRC32C_H_
#define MUSTER_WORKER_TENSORBOARD_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace muster::tensorboard {

uint32_t Crc32c(std::string_view bytes);

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_CRC32C_H_
