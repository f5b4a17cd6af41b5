#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/torchfile/torch_archive.h"
#include "tests/fuzz/target.h"

using muster::fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("archive", MFD_CLOEXEC);
  Require(fd >= 0 && write(fd, data, size) == static_cast<ssize_t>(size), "memory for a file");
  const auto archive = muster::torchfile::TorchArchive::Open(absl::StrCat("/proc/self/fd/", fd));
  if (archive.ok()) {
    unsigned sum = 0;
    for (const auto& tensor : archive->document().tensors) {
      const auto extent = archive->Storage(tensor);
      if (!extent.ok()) continue;
      Require(extent->offset <= size && extent->bytes <= size - extent->offset,
              "a storage lies in the file");
      for (uint64_t i = 0; i < extent->bytes; ++i) sum += archive->data(*extent)[i];
    }
    Require(sum != 1u << 31, "unlikely; so that the sum is needed");
  }
  close(fd);
  return 0;
}
