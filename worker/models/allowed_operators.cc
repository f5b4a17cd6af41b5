#include "worker/models/allowed_operators.h"

#include <set>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/operators/computing.h"

namespace muster::models {
namespace {

// Operators of the namespace prim: the language.
constexpr char kLanguage[] = R"(
CallFunction CallMethod Constant CreateObject DictConstruct Enter EnumName EnumValue Exit GetAttr
HasAttr If ImplicitTensorToNum ListConstruct ListUnpack Loop ModuleContainerIndex NumToTensor Print
RaiseException SetAttr StringIndex TupleConstruct TupleIndex TupleSlice TupleUnpack Uninitialized
abs annotate data device dtype grad index is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps
is_mtia is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu isinstance itemsize
layout max min name nbytes rangelist requires_grad shape tolist type unchecked_cast
unchecked_unwrap_optional
)";

using Names = std::set<absl::string_view>;

Names Words(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

}  // namespace

bool IsAllowedOperator(absl::string_view name) {
  static const auto& language = *new Names(Words(kLanguage));
  static const auto& computing = *new Names(Words(operators::kComputing));
  if (absl::ConsumePrefix(&name, "prim::")) return language.count(name) > 0;
  if (!absl::ConsumePrefix(&name, "aten::")) return false;
  if (computing.count(name) > 0) return true;
  return absl::ConsumeSuffix(&name, "_") && computing.count(name) > 0;
}

}  // namespace muster::models
