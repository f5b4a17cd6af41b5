#include "worker/models/plugin/file.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"
#include "common/files/mapped_file.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "muster/plugin.h"

namespace muster::models {
namespace {

using Versions = std::map<std::string, std::string>;

absl::Status Invalid(const std::string& path, const std::string& found) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": expected a shared object with a Muster plug-in (docs/how-to/plugins.md), found ",
      found));
}

// The machine that this program was built for.
constexpr int kBits = sizeof(void*) * 8;
#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#else
#error "no ELF machine is known for this processor: add it here"
#endif

// Checks the file's size and machine. The dynamic loader does not check the size that the headers
// state, so a file that was cut off would end the process with SIGBUS. For a file of another
// machine the loader's error says that the file does not exist.
absl::Status CheckElf(const files::MappedFile& file) {
  const uint64_t size = file.size();
  ElfW(Ehdr) header;
  if (size == 0) return Invalid(file.path(), "an empty file");
  if (size < SELFMAG || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0) {
    RETURN_IF_ERROR(filekind::CheckKind(file.path(), file.data(), size,
                                        filekind::Wanted::kPlugin));
    return Invalid(file.path(), "something else");
  }
  const auto cut_off = [&](uint64_t expected) {
    return absl::DataLossError(absl::StrCat(file.path(), ": is cut off: expected at least ",
                                            expected, " bytes, found ", size));
  };
  if (size < sizeof(header)) return cut_off(sizeof(header));
  std::memcpy(&header, file.data(), sizeof(header));
  const int bits = header.e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32;
  if (bits != kBits || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != kMachine) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": expected a shared object for this machine (ELF machine ", kMachine, ", ",
        kBits, " bits), found one for machine ", header.e_machine, ", ", bits, " bits"));
  }
  if (header.e_type != ET_DYN) {
    return Invalid(file.path(), header.e_type == ET_REL ? "an object file that is not linked yet"
                                                        : "an ELF file of another kind");
  }
  const auto end_of = [](uint64_t offset, uint64_t count, uint64_t each) {
    uint64_t end = 0;
    return __builtin_add_overflow(offset, count * each, &end) ? UINT64_MAX : end;
  };
  // Compilers put the section table last.
  uint64_t end = std::max(end_of(header.e_phoff, header.e_phnum, sizeof(ElfW(Phdr))),
                          end_of(header.e_shoff, header.e_shnum, header.e_shentsize));
  if (end > size) return cut_off(end);
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    std::memcpy(&segment, file.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type == PT_LOAD)
      end = std::max(end, end_of(segment.p_offset, segment.p_filesz, 1));
  }
  return end > size ? cut_off(end) : absl::OkStatus();
}

// Parses "muster-plugin-stamp:a=1;b=2;" to {a: 1, b: 2}. Ignores the text after the last ';'.
Versions ParseStamp(std::string_view stamp) {
  Versions versions;
  stamp.remove_prefix(stamp.find(':') + 1);
  for (size_t end; (end = stamp.find(';')) != stamp.npos; stamp.remove_prefix(end + 1)) {
    const std::string_view entry = stamp.substr(0, end);
    const size_t name_end = entry.find('=');
    if (name_end == entry.npos) break;
    versions[std::string(entry.substr(0, name_end))] = entry.substr(name_end + 1);
  }
  return versions;
}

}  // namespace

absl::Status CheckPluginFile(const std::string& path) {
  ASSIGN_OR_RETURN(const files::MappedFile file, files::MappedFile::Open(path));
  RETURN_IF_ERROR(CheckElf(file));
  constexpr std::string_view kOwn = MUSTER_PLUGIN_STAMP;
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  const size_t begin = bytes.find(kOwn.substr(0, kOwn.find(':') + 1));
  if (begin == bytes.npos) return Invalid(path, "a shared object without MUSTER_PLUGIN");
  const std::string_view found = bytes.substr(begin, 1024);

  static constexpr struct {
    const char* key;
    const char* what;
  } kCompared[] = {
      {"interface", "the plug-in interface"}, {"torch", "LibTorch"}, {"abi", "the C++ library"}};
  Versions theirs = ParseStamp(found.substr(0, found.find('\0')));
  Versions ours = ParseStamp(kOwn);
  Problems problems;
  for (const auto& [key, what] : kCompared) {
    if (theirs[key] == ours[key]) continue;
    problems.Add(absl::StrCat(what, ": the plug-in was built against '", theirs[key],
                              "', this worker against '", ours[key], "'"));
  }
  return problems.ToStatus(
      absl::StatusCode::kFailedPrecondition,
      absl::StrCat(path, ": was built against other versions, build it again"));
}

}  // namespace muster::models
