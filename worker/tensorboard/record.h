// The records of which an event file consists (TFRecord): length, checksum of the length, data,
// checksum of the data; little endian. Pure.
#ifndef MUSTER_WORKER_TENSORBOARD_RECORD_H_
#define MUSTER_WORKER_TENSORBOARD_RECORD_H_

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

namespace muster::tensorboard {

// CRC-32C (Castagnoli), as RFC 3720 defines it in B.4.
uint32_t Crc32c(std::string_view bytes);

// Its CRC-32C, rotated and shifted, so that a checksum of bytes that contain checksums is no
// special number.
uint32_t MaskedCrc32c(std::string_view bytes);

// The record with this data.
std::string Record(std::string_view data);

// The data of the record at which `file` stands, and `file` behind it. Nothing: the file ends, or
// what follows is no complete and correct record; a reader cannot go on behind it.
std::optional<std::string> ReadRecord(std::istream& file);

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_RECORD_H_
