#include "worker/models/torchscript/checks.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/function.h"
#include "ATen/core/jit_type.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/problems/problems.h"
#include "torch/csrc/jit/api/compilation_unit.h"
#include "torch/csrc/jit/api/function_impl.h"
#include "torch/csrc/jit/ir/ir.h"
#include "worker/models/allowed_operators.h"
#include "worker/models/torchscript/place.h"

namespace muster::models {
namespace {

using torch::jit::Block;
using torch::jit::Function;
using torch::jit::Node;

// Returns "model.M.forward" for "__torch__.model.___torch_mangle_3.M.forward".
std::string NameOf(const Function& function) {
  std::vector<std::string> parts = function.qualname().atoms();
  std::erase_if(parts, [](const std::string& part) {
    return part == "__torch__" || absl::StartsWith(part, "___torch_mangle_");
  });
  return Quotable(absl::StrJoin(parts, "."));
}

// Returns whether the type is a class in C++, of LibTorch or of another library.
bool IsForeign(const c10::TypePtr& type) {
  const auto cls = type->cast<c10::ClassType>();
  return cls != nullptr && cls->name().has_value() &&
         absl::StartsWith(cls->name()->qualifiedName(), "__torch__.torch.classes.");
}

class OperatorCheck {
 public:
  void Add(Function* function) {
    if (known_.insert(function).second) waiting_.push_back(function);
  }

  const Problems& Run() {
    while (!waiting_.empty()) {
      Function* const function = waiting_.back();
      waiting_.pop_back();
      torch::jit::GraphFunction* const graph = torch::jit::tryToGraphFunction(*function);
      where_ = NameOf(*function);
      if (graph == nullptr) {
        Refuse("code in C++", "");
      } else {
        Visit(graph->graph()->block());
      }
    }
    return problems_;
  }

 private:
  void Visit(Block* block) {
    for (Node* node : block->nodes()) {
      Visit(*node);
      for (Block* inner : node->blocks()) Visit(inner);
    }
  }

  void Visit(Node& node) {
    const std::string name = node.kind().toQualString();
    if (!IsAllowedOperator(name)) {
      Refuse(Quotable(name), PlaceOf(node.sourceRange()));
    } else if (node.kind() == c10::prim::CallFunction) {
      if (const auto type = node.input(0)->type()->cast<c10::FunctionType>(); type != nullptr) {
        Add(type->function());
      }
    } else if (node.kind() == c10::prim::CallMethod || node.kind() == c10::prim::CreateObject) {
      const bool makes = node.kind() == c10::prim::CreateObject;
      const c10::TypePtr& type = (makes ? node.output(0) : node.input(0))->type();
      if (IsForeign(type)) {
        Refuse(absl::StrCat("class ", Quotable(type->cast<c10::ClassType>()->name()->name())),
               PlaceOf(node.sourceRange()));
      }
    }
  }

  // Adds a problem, once for each method.
  void Refuse(const std::string& what, const std::string& place) {
    if (told_.emplace(where_, what).second) {
      problems_.Add(absl::StrCat(where_, " calls ", what, place));
    }
  }

  std::set<Function*> known_;
  std::vector<Function*> waiting_;
  std::string where_;  // the function that is visited
  std::set<std::pair<std::string, std::string>> told_;
  Problems problems_;
};

}  // namespace

absl::Status CheckOperators(const torch::jit::Module& top) {
  OperatorCheck check;
  // The functions include the methods.
  for (Function* function : top._ivalue()->compilation_unit()->get_functions()) check.Add(function);
  const Problems& problems = check.Run();
  if (problems.count() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      problems.Text(),
      "; expected only operators that compute with tensors, numbers, texts, lists and dictionaries "
      "(docs/reference/models.md); take the others out of the module and save it again"));
}

}  // namespace muster::models
