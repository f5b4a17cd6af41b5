// The program of torch_file_test.py. Commands:
// - "small": writes a torch file with values of every kind.
// - "huge": writes a torch file whose storage is larger than 4 GiB, as a hole.
// - "read": reads a file and prints its values as a Python literal. A tensor is ("tensor", type,
//   offset, shape, strides, CRC-32 of its storage).
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/torchfile/pickle_writer.h"
#include "common/torchfile/torch_archive.h"
#include "common/torchfile/torch_file.h"

using muster::torchfile::Fragment;
using muster::torchfile::PickleDocument;
using muster::torchfile::PickleWriter;
using muster::torchfile::TorchArchive;
using muster::torchfile::TorchFile;

namespace {

std::string EveryKind() {
  PickleWriter pickle;
  pickle.BeginDict();
  pickle.Text("none");
  pickle.None();
  pickle.Text("bools");
  pickle.BeginList();
  pickle.Bool(true);
  pickle.Bool(false);
  pickle.EndList();
  pickle.Text("ints");
  pickle.BeginTuple();
  for (const int64_t value : {int64_t{0}, int64_t{-1}, int64_t{1} << 31, -(int64_t{1} << 62)}) {
    pickle.Int(value);
  }
  pickle.EndTuple();
  pickle.Text("float");
  pickle.Float(3e-4);
  pickle.Text(
      "gr\xc3\xb6\xc3\x9f"
      "e");
  pickle.Text("");
  pickle.Int(7);
  pickle.BeginDict();
  pickle.EndDict();
  pickle.Text("empty");
  pickle.BeginList();
  pickle.EndList();
  pickle.Text("matrix");
  pickle.Float32Tensor("0", {2, 3});
  pickle.Text("scalar");
  pickle.Float32Tensor("1", {});
  pickle.Text("nothing");
  pickle.Float32Tensor("2", {3, 0});
  pickle.EndDict();
  return pickle.Finish();
}

std::string Huge(int64_t elements) {
  PickleWriter pickle;
  pickle.BeginList();
  pickle.Float32Tensor("0", {elements});
  pickle.Float32Tensor("1", {1});
  pickle.EndList();
  return pickle.Finish();
}

bool WriteAt(int fd, uint64_t offset, const void* data, size_t bytes) {
  return pwrite(fd, data, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "b'";
  for (const char byte : text) {
    char hex[5];
    snprintf(hex, sizeof(hex), "\\x%02x", static_cast<unsigned char>(byte));
    quoted += hex;
  }
  return quoted + "'";
}

std::string Literal(const TorchArchive& archive, size_t number) {
  using Kind = PickleDocument::Kind;
  const PickleDocument::Node& node = archive.document().nodes[number];
  std::vector<std::string> items;
  for (const size_t item : node.items) items.push_back(Literal(archive, item));
  switch (node.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return node.integer != 0 ? "True" : "False";
    case Kind::kInt:
      return absl::StrCat(node.integer);
    case Kind::kFloat:
      return absl::StrFormat("float.fromhex('%a')", node.number);
    case Kind::kText:
      return Quoted(node.text);
    case Kind::kList:
      return absl::StrCat("[", absl::StrJoin(items, ","), "]");
    case Kind::kTuple:
      return absl::StrCat("(", absl::StrJoin(items, ","), items.empty() ? ")" : ",)");
    case Kind::kDict: {
      std::string dict = "{";
      for (size_t i = 0; i < items.size(); i += 2) {
        absl::StrAppend(&dict, items[i], ":", items[i + 1], ",");
      }
      return dict + "}";
    }
    case Kind::kTensor: {
      const auto& tensor = archive.document().tensors[node.tensor];
      const auto extent = archive.Storage(tensor);
      if (!extent.ok()) return Quoted(std::string(extent.status().message()));
      const auto sizes = [](const std::vector<int64_t>& all) {
        return absl::StrCat("[", absl::StrJoin(all, ","), "]");
      };
      return absl::StrCat("('tensor','", muster::safetensors::Name(tensor.dtype), "',",
                          tensor.offset, ",", sizes(tensor.shape), ",", sizes(tensor.strides), ",",
                          crc32(0, archive.data(*extent), static_cast<uInt>(extent->bytes)), ")");
    }
  }
  return "";
}

int Read(const char* path) {
  const auto archive = TorchArchive::Open(path);
  if (!archive.ok()) {
    std::cerr << archive.status().message() << std::endl;
    return 1;
  }
  std::cout << Literal(*archive, archive->document().root) << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::string(argv[2]) == "read") return Read(argv[1]);
  const bool huge = std::string(argv[2]) == "huge";
  constexpr uint64_t kHugeBytes = uint64_t{5} << 30;
  const std::vector<float> matrix = {0, 1, 2, 3, 4, 5};
  const std::vector<float> scalar = {-0.5};
  const std::vector<std::vector<float>> storages =
      huge ? std::vector<std::vector<float>>{{}, scalar}
           : std::vector<std::vector<float>>{matrix, scalar, {}};
  std::vector<uint64_t> bytes;
  std::vector<uint32_t> crcs;
  for (const auto& storage : storages) {
    bytes.push_back(storage.size() * sizeof(float));
    crcs.push_back(crc32(0, reinterpret_cast<const Bytef*>(storage.data()), bytes.back()));
  }
  if (huge) bytes[0] = kHugeBytes;
  const TorchFile file(huge ? Huge(kHugeBytes / sizeof(float)) : EveryKind(), bytes);
  const int fd = open(argv[1], O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(file.size())) != 0) return 1;
  for (size_t i = 0; i < storages.size(); ++i) {
    const size_t size = storages[i].size() * sizeof(float);
    if (!WriteAt(fd, file.storage_offset(i), storages[i].data(), size)) return 1;
  }
  for (const Fragment& fragment : file.Fragments(crcs)) {
    if (!WriteAt(fd, fragment.offset, fragment.bytes.data(), fragment.bytes.size())) return 1;
  }
  return close(fd) == 0 ? 0 : 1;
}
