// The numbers of the ZIP format that torch files need (PKWARE, APPNOTE.TXT 6.3.10).
#ifndef MUSTER_COMMON_TORCHFILE_ZIP_FORMAT_H_
#define MUSTER_COMMON_TORCHFILE_ZIP_FORMAT_H_

#include <cstdint>

namespace muster::torchfile {

inline constexpr uint32_t kLocalHeader = 0x04034b50;
inline constexpr uint32_t kDirectoryEntry = 0x02014b50;
inline constexpr uint32_t kEndOfDirectory64 = 0x06064b50;
inline constexpr uint32_t kLocatorOfEnd64 = 0x07064b50;
inline constexpr uint32_t kEndOfDirectory = 0x06054b50;
inline constexpr uint64_t kLocalHeaderBytes = 30;
inline constexpr uint64_t kDirectoryEntryBytes = 46;
inline constexpr uint64_t kEnd64Bytes = 56;
inline constexpr uint64_t kLocatorBytes = 20;
inline constexpr uint64_t kEndBytes = 22;

inline constexpr uint16_t kVersionNeeded = 45;  // of ZIP, with ZIP64
inline constexpr uint16_t kZip64Extra = 0x0001;
inline constexpr uint16_t kPaddingExtra = 0x4246;  // "FB", as PyTorch calls it
inline constexpr uint64_t kExtraHeader = 4;        // id and size
// The bytes of both sizes; in the directory, the header's position, too.
inline constexpr uint64_t kLocalZip64Bytes = kExtraHeader + 16;
inline constexpr uint64_t kDirectoryZip64Bytes = kExtraHeader + 24;
// The value that refers to a ZIP64 field.
inline constexpr uint32_t kSee64 = 0xffffffff;

}  // namespace muster::torchfile

#endif  // MUSTER_COMMON_TORCHFILE_ZIP_FORMAT_H_
