#include "common/torchfile/pickle_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "common/torchfile/pickle_document.h"

namespace muster::torchfile {
namespace {

using Kind = PickleDocument::Kind;
using Node = PickleDocument::Node;
using safetensors::DType;

constexpr size_t kMostBytes = size_t{128} << 20;
// The most arguments of a function, dimensions of a tensor, and the longest name or key. A value
// that the pickle stores once and uses many times must not cost much each time.
constexpr size_t kMostArguments = 64;
constexpr size_t kLongestName = 200;

// The names that a pickle may contain.
enum class Global { kRebuildTensor, kRebuildParameter, kOrderedDict, kSize, kStorage };
struct KnownGlobal {
  std::string_view name;
  Global global;
  DType dtype = DType::kF32;  // of a storage
};
constexpr std::array kGlobals = {
    KnownGlobal{"torch._utils _rebuild_tensor_v2", Global::kRebuildTensor},
    KnownGlobal{"torch._utils _rebuild_parameter", Global::kRebuildParameter},
    KnownGlobal{"collections OrderedDict", Global::kOrderedDict},
    KnownGlobal{"torch Size", Global::kSize},
    KnownGlobal{"torch FloatStorage", Global::kStorage, DType::kF32},
    KnownGlobal{"torch DoubleStorage", Global::kStorage, DType::kF64},
    KnownGlobal{"torch HalfStorage", Global::kStorage, DType::kF16},
    KnownGlobal{"torch BFloat16Storage", Global::kStorage, DType::kBF16},
    KnownGlobal{"torch LongStorage", Global::kStorage, DType::kI64},
    KnownGlobal{"torch IntStorage", Global::kStorage, DType::kI32},
    KnownGlobal{"torch ShortStorage", Global::kStorage, DType::kI16},
    KnownGlobal{"torch CharStorage", Global::kStorage, DType::kI8},
    KnownGlobal{"torch ByteStorage", Global::kStorage, DType::kU8},
    KnownGlobal{"torch BoolStorage", Global::kStorage, DType::kBool},
};

// An item on the stack: a node, or a value that only the machine has.
struct Item {
  enum class What { kNode, kMark, kGlobal, kStorage } what = What::kNode;
  size_t number = 0;  // of the node; of the global in kGlobals; of the storage
};

// The virtual machine of the pickle format. Threading: one thread.
class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<PickleDocument> Run() {
    if (bytes_.size() > kMostBytes) return Bad(absl::StrCat("it has ", bytes_.size(), " bytes"));
    while (true) {
      ASSIGN_OR_RETURN(const uint8_t op, Byte());
      if (op == '.') return Finish();
      RETURN_IF_ERROR(Carry(op));
    }
  }

 private:
  absl::Status Bad(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("not a pickle of plain values: at byte ", at_, ": ", what));
  }

  // ---- Input.
  absl::StatusOr<uint8_t> Byte() {
    if (at_ == bytes_.size()) return Bad("expected more, found the end");
    return static_cast<uint8_t>(bytes_[at_++]);
  }
  absl::StatusOr<uint64_t> Number(int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; ++i) {
      ASSIGN_OR_RETURN(const uint8_t byte, Byte());
      value |= static_cast<uint64_t>(byte) << (8 * i);
    }
    return value;
  }
  absl::StatusOr<std::string_view> Bytes(uint64_t size) {
    if (size > bytes_.size() - at_) {
      return Bad(absl::StrCat("expected ", size, " bytes, found ", bytes_.size() - at_));
    }
    const std::string_view found = bytes_.substr(at_, size);
    at_ += size;
    return found;
  }
  absl::StatusOr<std::string_view> Line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return Bad("expected a line, found no end of it");
    const std::string_view line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  // ---- The stack.
  void Push(Item item) { stack_.push_back(item); }
  size_t NewNode(Node node) {
    document_.nodes.push_back(std::move(node));
    return document_.nodes.size() - 1;
  }
  void PushNode(Node node) { Push({Item::What::kNode, NewNode(std::move(node))}); }
  absl::StatusOr<Item> Pop() {
    if (stack_.empty()) return Bad("expected a value on the stack, found none");
    const Item item = stack_.back();
    stack_.pop_back();
    return item;
  }
  absl::StatusOr<size_t> PopNode() {
    ASSIGN_OR_RETURN(const Item item, Pop());
    if (item.what != Item::What::kNode) return Bad("expected a plain value");
    return item.number;
  }
  // Takes the items above the newest mark, and the mark.
  absl::StatusOr<std::vector<Item>> PopMark() {
    for (size_t i = stack_.size(); i-- > 0;) {
      if (stack_[i].what != Item::What::kMark) continue;
      std::vector<Item> items(stack_.begin() + static_cast<int64_t>(i) + 1, stack_.end());
      stack_.resize(i);
      return items;
    }
    return Bad("expected a mark on the stack, found none");
  }
  absl::StatusOr<std::vector<size_t>> Nodes(const std::vector<Item>& items) {
    std::vector<size_t> nodes;
    for (const Item& item : items) {
      if (item.what != Item::What::kNode) return Bad("expected plain values");
      nodes.push_back(item.number);
    }
    return nodes;
  }
  // The node on top of the stack, if it is of this kind.
  absl::StatusOr<Node*> Top(Kind kind, const char* name) {
    if (stack_.empty() || stack_.back().what != Item::What::kNode ||
        document_.nodes[stack_.back().number].kind != kind) {
      return Bad(absl::StrCat("expected a ", name, " on the stack"));
    }
    return &document_.nodes[stack_.back().number];
  }

  // ---- Opcodes.
  absl::Status Carry(uint8_t op) {
    switch (op) {
      case 0x80: {  // PROTO
        ASSIGN_OR_RETURN(const uint8_t protocol, Byte());
        return protocol <= 5 ? absl::OkStatus() : Bad(absl::StrCat("protocol ", int{protocol}));
      }
      case 0x95:  // FRAME
        return Number(8).status();
      case '(':
        Push({Item::What::kMark});
        return absl::OkStatus();
      case 'N':
        PushNode({});
        return absl::OkStatus();
      case 0x88:
      case 0x89:
        PushNode({.kind = Kind::kBool, .integer = op == 0x88});
        return absl::OkStatus();
      case 'J':
      case 'K':
      case 'M':
        return Integer(op == 'J' ? 4 : op == 'K' ? 1 : 2);
      case 0x8a:  // LONG1
        return Long();
      case 'G':
        return Float();
      case 'X':
      case 0x8c:
      case 0x8d:
        return Text(op == 'X' ? 4 : op == 0x8c ? 1 : 8);
      case ']':
        PushNode({.kind = Kind::kList});
        return absl::OkStatus();
      case '}':
        PushNode({.kind = Kind::kDict});
        return absl::OkStatus();
      case ')':
        PushNode({.kind = Kind::kTuple});
        return absl::OkStatus();
      case 'a':
      case 'e':
        return Append(op == 'e');
      case 's':
      case 'u':
        return SetItems(op == 'u');
      case 't':
      case 0x85:
      case 0x86:
      case 0x87:
        return Tuple(op == 't' ? -1 : op - 0x84);
      case 'q':
      case 'r':
      case 0x94:
        return Memoize(op);
      case 'h':
      case 'j':
        return Recall(op == 'h' ? 1 : 4);
      case 'c':
        return NamedGlobal();
      case 0x93:
        return GlobalOfStack();
      case 'Q':
        return PersistentId();
      case 'R':
        return Reduce();
      case 'b':
        return Build();
      default:
        return Bad(absl::StrCat("opcode ", int{op}, " is not for plain values"));
    }
  }

  absl::Status Integer(int size) {
    ASSIGN_OR_RETURN(const uint64_t value, Number(size));
    PushNode({.kind = Kind::kInt,
              .integer =
                  size == 4 ? int64_t{static_cast<int32_t>(value)} : static_cast<int64_t>(value)});
    return absl::OkStatus();
  }

  absl::Status Long() {
    ASSIGN_OR_RETURN(const uint8_t size, Byte());
    if (size > 8) return Bad("an integer of more than 64 bits");
    ASSIGN_OR_RETURN(uint64_t value, Number(size));
    // Two's complement of `size` bytes.
    if (size > 0 && size < 8 && (value >> (8 * size - 1)) != 0) value |= ~uint64_t{0} << (8 * size);
    PushNode({.kind = Kind::kInt, .integer = static_cast<int64_t>(value)});
    return absl::OkStatus();
  }

  absl::Status Float() {
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) {
      ASSIGN_OR_RETURN(const uint8_t byte, Byte());
      bits = bits << 8 | byte;
    }
    PushNode({.kind = Kind::kFloat, .number = std::bit_cast<double>(bits)});
    return absl::OkStatus();
  }

  absl::Status Text(int size_bytes) {
    ASSIGN_OR_RETURN(const uint64_t size, Number(size_bytes));
    ASSIGN_OR_RETURN(const std::string_view text, Bytes(size));
    PushNode({.kind = Kind::kText, .text = std::string(text)});
    return absl::OkStatus();
  }

  absl::Status Append(bool many) {
    std::vector<Item> items(1);
    if (many) {
      ASSIGN_OR_RETURN(items, PopMark());
    } else {
      ASSIGN_OR_RETURN(items[0], Pop());
    }
    ASSIGN_OR_RETURN(const std::vector<size_t> nodes, Nodes(items));
    ASSIGN_OR_RETURN(Node* const list, Top(Kind::kList, "list"));
    list->items.insert(list->items.end(), nodes.begin(), nodes.end());
    return absl::OkStatus();
  }

  absl::Status SetItems(bool many) {
    std::vector<Item> items(2);
    if (many) {
      ASSIGN_OR_RETURN(items, PopMark());
    } else {
      ASSIGN_OR_RETURN(items[1], Pop());
      ASSIGN_OR_RETURN(items[0], Pop());
    }
    ASSIGN_OR_RETURN(const std::vector<size_t> nodes, Nodes(items));
    if (nodes.size() % 2 != 0) return Bad("a key without a value");
    ASSIGN_OR_RETURN(Node* const dict, Top(Kind::kDict, "dict"));
    dict->items.insert(dict->items.end(), nodes.begin(), nodes.end());
    return absl::OkStatus();
  }

  // Makes a tuple of `size` items; -1: of the items above the mark.
  absl::Status Tuple(int size) {
    std::vector<Item> items;
    if (size < 0) {
      ASSIGN_OR_RETURN(items, PopMark());
    } else {
      items.resize(size);
      for (int i = size; i-- > 0;) {
        ASSIGN_OR_RETURN(items[i], Pop());
      }
    }
    // A tuple of arguments may contain values that only the machine has. They are kept beside the
    // node.
    const size_t node = NewNode({.kind = Kind::kTuple});
    for (const Item& item : items) {
      if (item.what == Item::What::kMark) return Bad("a mark in a tuple");
      if (item.what == Item::What::kNode) document_.nodes[node].items.push_back(item.number);
    }
    if (document_.nodes[node].items.size() != items.size()) arguments_[node] = std::move(items);
    Push({Item::What::kNode, node});
    return absl::OkStatus();
  }

  absl::Status Memoize(uint8_t op) {
    uint64_t number = memo_.size();
    if (op != 0x94) {
      ASSIGN_OR_RETURN(number, Number(op == 'q' ? 1 : 4));
    }
    if (stack_.empty() || stack_.back().what == Item::What::kMark) {
      return Bad("expected a value to remember");
    }
    memo_[number] = stack_.back();
    return absl::OkStatus();
  }

  absl::Status Recall(int size) {
    ASSIGN_OR_RETURN(const uint64_t number, Number(size));
    const auto found = memo_.find(number);
    if (found == memo_.end()) return Bad(absl::StrCat("value ", number, " was not remembered"));
    Push(found->second);
    return absl::OkStatus();
  }

  absl::Status PushGlobal(const std::string& name) {
    for (size_t i = 0; i < kGlobals.size(); ++i) {
      if (kGlobals[i].name != name) continue;
      Push({Item::What::kGlobal, i});
      return absl::OkStatus();
    }
    return Bad(absl::StrCat("'", name.substr(0, 200), "' is not allowed"));
  }
  absl::Status NamedGlobal() {
    ASSIGN_OR_RETURN(const std::string_view module, Line());
    ASSIGN_OR_RETURN(const std::string_view name, Line());
    return PushGlobal(absl::StrCat(std::string(module), " ", std::string(name)));
  }
  absl::Status GlobalOfStack() {
    ASSIGN_OR_RETURN(const size_t name, PopNode());
    ASSIGN_OR_RETURN(const size_t module, PopNode());
    if (document_.nodes[module].text.size() + document_.nodes[name].text.size() > kLongestName) {
      return Bad("a name that is too long");
    }
    return PushGlobal(absl::StrCat(document_.nodes[module].text, " ", document_.nodes[name].text));
  }

  // The items of a tuple node, also those that only the machine has; none if there are too many.
  std::vector<Item> ItemsOf(size_t node) const {
    if (const auto found = arguments_.find(node); found != arguments_.end()) {
      return found->second.size() <= kMostArguments ? found->second : std::vector<Item>();
    }
    if (document_.nodes[node].items.size() > kMostArguments) return {};
    std::vector<Item> items;
    for (const size_t item : document_.nodes[node].items)
      items.push_back({Item::What::kNode, item});
    return items;
  }
  const Node* NodeOf(const Item& item, Kind kind) const {
    if (item.what != Item::What::kNode) return nullptr;
    const Node& node = document_.nodes[item.number];
    return node.kind == kind ? &node : nullptr;
  }

  // ("storage", type, key, device, elements)
  absl::Status PersistentId() {
    ASSIGN_OR_RETURN(const size_t node, PopNode());
    const std::vector<Item> items = ItemsOf(node);
    const Node* const word = items.size() == 5 ? NodeOf(items[0], Kind::kText) : nullptr;
    const Node* const key = items.size() == 5 ? NodeOf(items[2], Kind::kText) : nullptr;
    const Node* const elements = items.size() == 5 ? NodeOf(items[4], Kind::kInt) : nullptr;
    if (word == nullptr || word->text != "storage" || key == nullptr || elements == nullptr ||
        key->text.size() > kLongestName || elements->integer < 0 ||
        items[1].what != Item::What::kGlobal ||
        kGlobals[items[1].number].global != Global::kStorage) {
      return Bad("expected the description of a storage");
    }
    storages_.push_back({.storage = key->text,
                         .dtype = kGlobals[items[1].number].dtype,
                         .storage_elements = elements->integer});
    Push({Item::What::kStorage, storages_.size() - 1});
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<int64_t>> Sizes(const Item& item) {
    const Node* const tuple = NodeOf(item, Kind::kTuple);
    if (tuple == nullptr || tuple->items.size() > kMostArguments) {
      return Bad("expected a tuple of sizes");
    }
    std::vector<int64_t> sizes;
    for (const Item& size : ItemsOf(item.number)) {
      const Node* const number = NodeOf(size, Kind::kInt);
      if (number == nullptr || number->integer < 0) return Bad("expected sizes of 0 and more");
      sizes.push_back(number->integer);
    }
    return sizes;
  }

  // (storage, offset, size, stride, requires_grad, hooks, ...)
  absl::Status RebuildTensor(const std::vector<Item>& items) {
    const Node* const offset = items.size() >= 6 ? NodeOf(items[1], Kind::kInt) : nullptr;
    if (offset == nullptr || offset->integer < 0 || items[0].what != Item::What::kStorage) {
      return Bad("expected a storage, and where a tensor lies in it");
    }
    TensorValue tensor = storages_[items[0].number];
    tensor.offset = offset->integer;
    ASSIGN_OR_RETURN(tensor.shape, Sizes(items[2]));
    ASSIGN_OR_RETURN(tensor.strides, Sizes(items[3]));
    if (tensor.shape.size() != tensor.strides.size()) {
      return Bad("expected a stride for each size of a tensor");
    }
    RETURN_IF_ERROR(CheckInStorage(tensor));
    PushNode({.kind = Kind::kTensor, .tensor = document_.tensors.size()});
    document_.tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status CheckInStorage(const TensorValue& tensor) const {
    int64_t last = tensor.offset;
    bool empty = false;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      int64_t reach = 0;
      if (tensor.shape[i] == 0) {
        empty = true;
      } else if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) ||
                 __builtin_add_overflow(last, reach, &last)) {
        return Bad("a tensor that is too large");
      }
    }
    if (empty ? tensor.offset <= tensor.storage_elements : last < tensor.storage_elements) {
      return absl::OkStatus();
    }
    return Bad(absl::StrCat("a tensor that reaches to element ", last, " of a storage of ",
                            tensor.storage_elements));
  }

  absl::Status Reduce() {
    ASSIGN_OR_RETURN(const size_t arguments, PopNode());
    ASSIGN_OR_RETURN(const Item function, Pop());
    if (function.what != Item::What::kGlobal || document_.nodes[arguments].kind != Kind::kTuple) {
      return Bad("expected a function and a tuple of arguments");
    }
    const std::vector<Item> items = ItemsOf(arguments);
    switch (kGlobals[function.number].global) {
      case Global::kRebuildTensor:
        return RebuildTensor(items);
      case Global::kRebuildParameter:
        if (items.empty() || NodeOf(items[0], Kind::kTensor) == nullptr) {
          return Bad("expected the tensor of a parameter");
        }
        Push(items[0]);
        return absl::OkStatus();
      case Global::kOrderedDict:
        return MakeDict(items);
      case Global::kSize:
        if (items.size() != 1 || (NodeOf(items[0], Kind::kTuple) == nullptr &&
                                  NodeOf(items[0], Kind::kList) == nullptr)) {
          return Bad("expected the sizes of a torch.Size");
        }
        Push(items[0]);
        return absl::OkStatus();
      case Global::kStorage:
        return Bad("a storage is not made in a pickle");
    }
    return absl::OkStatus();
  }

  // Makes an OrderedDict of nothing, or of a list of pairs.
  absl::Status MakeDict(const std::vector<Item>& items) {
    Node dict{.kind = Kind::kDict};
    if (!items.empty()) {
      const Node* const pairs = NodeOf(items[0], Kind::kList);
      // Each list may be copied only once.
      if (pairs == nullptr || !copied_.insert(items[0].number).second) {
        return Bad("expected the pairs of an OrderedDict");
      }
      for (const size_t pair : pairs->items) {
        const Node& two = document_.nodes[pair];
        if (two.items.size() != 2 || (two.kind != Kind::kTuple && two.kind != Kind::kList)) {
          return Bad("expected the pairs of an OrderedDict");
        }
        dict.items.insert(dict.items.end(), two.items.begin(), two.items.end());
      }
    }
    PushNode(std::move(dict));
    return absl::OkStatus();
  }

  // Ignores attributes of an OrderedDict, such as a module's _metadata.
  absl::Status Build() {
    RETURN_IF_ERROR(PopNode().status());
    return Top(Kind::kDict, "dict").status();
  }

  absl::StatusOr<PickleDocument> Finish() {
    ASSIGN_OR_RETURN(document_.root, PopNode());
    if (at_ != bytes_.size()) return Bad("expected the end, found more");
    const auto reachable = ReachableNodes(document_);
    if (!reachable.ok()) return Bad(std::string(reachable.status().message()));
    for (const size_t node : *reachable) {
      if (arguments_.contains(node)) return Bad("a value that is no plain value");
    }
    return std::move(document_);
  }

  const std::string_view bytes_;
  size_t at_ = 0;
  PickleDocument document_;
  std::vector<Item> stack_;
  std::unordered_map<uint64_t, Item> memo_;
  std::vector<TensorValue> storages_;
  std::unordered_set<size_t> copied_;  // lists that an OrderedDict was made of
  // Tuples that contain globals or storages.
  std::unordered_map<size_t, std::vector<Item>> arguments_;
};

}  // namespace

absl::StatusOr<PickleDocument> ReadPickle(std::string_view bytes) { return Machine(bytes).Run(); }

}  // namespace muster::torchfile
