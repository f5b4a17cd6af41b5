#include "common/torchfile/pickle_writer.h"

#include <bit>
#include <limits>
#include <string>
#include <utility>

namespace muster::torchfile {
namespace {

// The opcodes, as in Python's pickletools.
constexpr char kProto = '\x80';
constexpr char kStop = '.';
constexpr char kMark = '(';
constexpr char kNone = 'N';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kBinInt = 'J';
constexpr char kLong1 = '\x8a';
constexpr char kBinFloat = 'G';
constexpr char kBinUnicode = 'X';
constexpr char kEmptyDict = '}';
constexpr char kSetItems = 'u';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kTuple = 't';
constexpr char kEmptyTuple = ')';
constexpr char kGlobal = 'c';
constexpr char kReduce = 'R';
constexpr char kBinPersistentId = 'Q';

template <typename Number>
void AppendLittleEndian(Number value, std::string* bytes) {
  for (size_t i = 0; i < sizeof(value); ++i) *bytes += static_cast<char>(value >> (8 * i));
}

}  // namespace

PickleWriter::PickleWriter() {
  Op(kProto);
  Op(2);
}

void PickleWriter::None() { Op(kNone); }

void PickleWriter::Bool(bool value) { Op(value ? kNewTrue : kNewFalse); }

void PickleWriter::Int(int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    Op(kBinInt);
    AppendLittleEndian(static_cast<uint32_t>(value), &bytes_);
  } else {
    Op(kLong1);
    Op(8);
    AppendLittleEndian(static_cast<uint64_t>(value), &bytes_);
  }
}

void PickleWriter::Float(double value) {
  Op(kBinFloat);
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 7; i >= 0; --i) bytes_ += static_cast<char>(bits >> (8 * i));
}

void PickleWriter::Text(std::string_view value) {
  Op(kBinUnicode);
  AppendLittleEndian(static_cast<uint32_t>(value.size()), &bytes_);
  bytes_ += value;
}

void PickleWriter::BeginDict() {
  Op(kEmptyDict);
  Op(kMark);
}
void PickleWriter::EndDict() { Op(kSetItems); }

void PickleWriter::BeginList() {
  Op(kEmptyList);
  Op(kMark);
}
void PickleWriter::EndList() { Op(kAppends); }

void PickleWriter::BeginTuple() { Op(kMark); }
void PickleWriter::EndTuple() { Op(kTuple); }

void PickleWriter::Global(std::string_view module, std::string_view name) {
  Op(kGlobal);
  bytes_ += module;
  bytes_ += '\n';
  bytes_ += name;
  bytes_ += '\n';
}

void PickleWriter::Sizes(const std::vector<int64_t>& sizes) {
  BeginTuple();
  for (const int64_t size : sizes) Int(size);
  EndTuple();
}

// torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), where the
// storage is the persistent id ("storage", type, key, device, elements).
void PickleWriter::Float32Tensor(const std::string& storage, const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t elements = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    // Strides as in LibTorch: a size of 0 counts as 1.
    strides[i] = i + 1 == shape.size() ? 1 : strides[i + 1] * (shape[i + 1] > 1 ? shape[i + 1] : 1);
    elements *= shape[i];
  }
  Global("torch._utils", "_rebuild_tensor_v2");
  BeginTuple();
  BeginTuple();
  Text("storage");
  Global("torch", "FloatStorage");
  Text(storage);
  Text("cpu");
  Int(elements);
  EndTuple();
  Op(kBinPersistentId);
  Int(0);
  Sizes(shape);
  Sizes(strides);
  Bool(false);
  Global("collections", "OrderedDict");
  Op(kEmptyTuple);
  Op(kReduce);
  EndTuple();
  Op(kReduce);
}

std::string PickleWriter::Finish() {
  Op(kStop);
  return std::move(bytes_);
}

}  // namespace muster::torchfile
