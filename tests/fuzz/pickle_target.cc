#include <string_view>

#include "common/torchfile/pickle_reader.h"
#include "tests/fuzz/target.h"

using muster::fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto document = muster::torchfile::ReadPickle({reinterpret_cast<const char*>(data), size});
  if (!document.ok()) return 0;
  Require(document->root < document->nodes.size(), "the root is a node");
  for (const auto& node : document->nodes) {
    for (const size_t item : node.items)
      Require(item < document->nodes.size(), "an item is a node");
    if (node.kind == muster::torchfile::PickleDocument::Kind::kTensor) {
      Require(node.tensor < document->tensors.size(), "a tensor is one of the tensors");
    }
    if (node.kind == muster::torchfile::PickleDocument::Kind::kDict) {
      Require(node.items.size() % 2 == 0, "a key has a value");
    }
  }
  for (const auto& tensor : document->tensors) {
    Require(tensor.shape.size() == tensor.strides.size(), "a dimension has a stride");
    Require(tensor.offset >= 0 && tensor.storage_elements >= 0, "sizes are not negative");
  }
  return 0;
}
