#include "worker/models/torchscript/forward.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/problems/problems.h"
#include "torch/csrc/jit/passes/inliner.h"

namespace muster::models {
namespace {

// Returns whether the node is an operator of torch.distributed.
bool IsCollective(const torch::jit::Node& node) {
  const std::string name = node.kind().toQualString();
  return name.find("c10d") < name.find("::");
}

bool IsTensor(const c10::TypePtr& type) { return type->kind() == c10::TypeKind::TensorType; }

// Returns whether the operator changes a list or a dictionary, its first argument.
bool ChangesItsFirst(const torch::jit::Node& node) {
  static const auto& operators = *new std::set<std::string>{
      "aten::append",    "aten::extend", "aten::insert",  "aten::pop",  "aten::remove",
      "aten::clear",     "aten::Delete", "aten::reverse", "aten::sort", "aten::setdefault",
      "aten::_set_item", "aten::update", "aten::popitem"};
  if (node.inputs().empty() || operators.count(node.kind().toQualString()) == 0) return false;
  const auto kind = node.inputs()[0]->type()->kind();
  return kind == c10::TypeKind::ListType || kind == c10::TypeKind::DictType;
}

class Changes {
 public:
  void Visit(torch::jit::Block* block) {
    for (torch::jit::Node* node : block->nodes()) {
      if (node->kind() == c10::prim::SetAttr) {
        Assigned(*node);
      } else if (ChangesItsFirst(*node) &&
                 node->inputs()[0]->node()->kind() == c10::prim::GetAttr) {
        NotKept("changes", node->inputs()[0]->node()->s(c10::attr::name));
      } else if (IsCollective(*node)) {
        Add(absl::StrCat("forward runs ", node->kind().toQualString(),
                         ", a collective of its own: the ranks of a job have no process group for "
                         "that, and one without input "
                         "would not answer; leave it out"));
      }
      for (torch::jit::Block* inner : node->blocks()) Visit(inner);
    }
  }

  const Problems& problems() const { return problems_; }
  const AssignedTensors& tensors() const { return tensors_; }

 private:
  void Assigned(const torch::jit::Node& node) {
    const std::string name = node.s(c10::attr::name);
    // The object of torch.no_grad(), which forward creates and nothing keeps.
    if (node.inputs()[0]->node()->kind() == c10::prim::CreateObject) return;
    if (!IsTensor(node.inputs()[1]->type())) return NotKept("assigns", name);
    const auto type = node.inputs()[0]->type()->cast<c10::ClassType>();
    const auto slot = type->findAttributeSlot(name);
    if (slot.has_value() && type->is_parameter(*slot)) {
      Add(absl::StrCat("forward assigns ", name,
                       ", which is a parameter; only the optimizer changes those"));
    }
    tensors_.emplace(type->name()->qualifiedName(), name);
  }

  void NotKept(const char* what, const std::string& name) {
    Add(absl::StrCat("forward ", what, " ", name,
                     ", which is no tensor, so no checkpoint holds it; make it a buffer"));
  }

  // Adds a problem once, even if forward has it several times.
  void Add(const std::string& problem) {
    if (told_.insert(problem).second) problems_.Add(problem);
  }

  Problems problems_;
  std::set<std::string> told_;
  AssignedTensors tensors_;
};

}  // namespace

absl::StatusOr<AssignedTensors> CheckForward(const torch::jit::Module& top) {
  const auto method = top.find_method("forward");
  if (!method.has_value())
    return absl::InvalidArgumentError("expected a module with a method forward");
  const auto& arguments = method->function().getSchema().arguments();
  const bool takes_one =
      arguments.size() >= 2 &&
      std::all_of(arguments.begin() + 2, arguments.end(),
                  [](const c10::Argument& one) { return one.default_value().has_value(); });
  if (!takes_one) {
    return absl::InvalidArgumentError(
        absl::StrCat("forward: expected one argument, found ", arguments.size() - 1));
  }
  const auto graph = method->graph()->copy();
  torch::jit::Inline(*graph);
  Changes changes;
  changes.Visit(graph->block());
  if (changes.problems().count() > 0) return absl::InvalidArgumentError(changes.problems().Text());
  return changes.tensors();
}

bool TakesAndGivesOneTensor(const torch::jit::Module& module) {
  const auto method = module.find_method("forward");
  if (!method.has_value()) return false;
  const c10::FunctionSchema& schema = method->function().getSchema();
  return schema.arguments().size() == 2 && IsTensor(schema.arguments()[1].type()) &&
         schema.returns().size() == 1 && IsTensor(schema.returns()[0].type());
}

}  // namespace muster::models
