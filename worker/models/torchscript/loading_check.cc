#include "worker/models/torchscript/checks.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/status.h"
#include "torch/csrc/jit/frontend/lexer.h"
#include "torch/csrc/jit/frontend/parser.h"
#include "torch/csrc/jit/frontend/source_range.h"
#include "torch/csrc/jit/frontend/tree.h"
#include "torch/csrc/jit/frontend/tree_views.h"
#include "worker/models/torchscript/place.h"

namespace muster::models {
namespace {

using caffe2::serialize::PyTorchStreamReader;
using torch::jit::Lexer;
using torch::jit::Parser;
using torch::jit::Source;
using torch::jit::TreeRef;

absl::Status Refused(const std::string& what, const std::string& next) {
  return absl::InvalidArgumentError(absl::StrCat(
      what, ", which runs while the file is loaded; expected a file that is only read; ", next));
}

std::string Text(PyTorchStreamReader* archive, const std::string& name) {
  const auto [data, size] = archive->getRecord(name);
  return {static_cast<const char*>(data.get()), size};
}

const std::string& NameOf(const TreeRef& identifier) { return identifier->tree(0)->stringValue(); }

// Returns the first name of "a.b.c"; empty for another expression.
std::string Root(const TreeRef& tree) {
  if (tree->kind() == torch::jit::TK_VAR) return NameOf(tree->tree(0));
  return tree->kind() == '.' ? Root(tree->tree(0)) : "";
}

bool IsPlain(const TreeRef& value);

bool ArePlain(const torch::jit::TreeList& values) {
  return std::all_of(values.begin(), values.end(), IsPlain);
}

// Returns whether torch.jit.save writes this call for a value: annotate(List[int], []) or
// torch.device("cpu").
bool IsPlainCall(const TreeRef& call) {
  const TreeRef& callee = call->tree(0);
  const torch::jit::TreeList& inputs = call->tree(1)->trees();
  if (!call->tree(2)->trees().empty()) return false;
  if (callee->kind() == torch::jit::TK_VAR) {
    return Root(callee) == "annotate" && inputs.size() == 2 && IsPlain(inputs[1]);
  }
  return callee->kind() == '.' && callee->tree(0)->kind() == torch::jit::TK_VAR &&
         Root(callee) == "torch" && NameOf(callee->tree(1)) == "device" && ArePlain(inputs);
}

bool IsPlain(const TreeRef& value) {
  switch (value->kind()) {
    case torch::jit::TK_CONST:
    case torch::jit::TK_STRINGLITERAL:
    case torch::jit::TK_NONE:
    case torch::jit::TK_TRUE:
    case torch::jit::TK_FALSE:
      return true;
    case torch::jit::TK_LIST:
    case torch::jit::TK_LIST_LITERAL:
    case torch::jit::TK_TUPLE_LITERAL:
    case torch::jit::TK_DICT_LITERAL:
    case torch::jit::TK_UNARY_MINUS:
      return ArePlain(value->trees());
    case torch::jit::TK_VAR:
    case '.': {
      // inf, nan, CONSTANTS.c0, and the members of enumerations.
      const std::string root = Root(value);
      return root == "inf" || root == "nan" || root == "CONSTANTS" || root == "__torch__";
    }
    case torch::jit::TK_APPLY:
      return IsPlainCall(value);
    default:
      return false;
  }
}

absl::Status CheckPlain(const TreeRef& value, const std::string& whose) {
  if (IsPlain(value)) return absl::OkStatus();
  return Refused(absl::StrCat(whose, " is no plain value but computed", PlaceOf(value->range())),
                 "write a number, a text, a list, a tuple or None in its place");
}

// Checks the defaults of a function and of the functions inside it.
absl::Status CheckDefaults(const TreeRef& tree) {
  if (tree->kind() == torch::jit::TK_PARAM && !tree->tree(2)->trees().empty()) {
    RETURN_IF_ERROR(CheckPlain(tree->tree(2)->tree(0), absl::StrCat("the default of the argument '",
                                                                    NameOf(tree->tree(0)), "'")));
  }
  for (const TreeRef& inner : tree->trees()) RETURN_IF_ERROR(CheckDefaults(inner));
  return absl::OkStatus();
}

absl::Status CheckClass(const TreeRef& tree) {
  const std::string& name = NameOf(tree->tree(0));
  for (const TreeRef& statement : torch::jit::ClassDef(tree).body().tree()->trees()) {
    if (statement->kind() == torch::jit::TK_DEF) {
      if (NameOf(statement->tree(0)) == "__setstate__") {
        return Refused(
            absl::StrCat("class ", name, " has a __setstate__", PlaceOf(statement->range())),
            "take __getstate__ and __setstate__ out of the class, and save it again");
      }
    } else if (statement->kind() == torch::jit::TK_ASSIGN) {
      const torch::jit::Assign assign(statement);
      // The form of a type: __annotations__["0"] = Tensor.
      const bool is_type =
          assign.lhs_list().size() == 1 && assign.lhs_list()[0].kind() == torch::jit::TK_SUBSCRIPT;
      if (assign.rhs().present() && !is_type) {
        RETURN_IF_ERROR(
            CheckPlain(assign.rhs().get().tree(), absl::StrCat("a constant of class ", name)));
      }
    }
  }
  return CheckDefaults(tree);
}

// Skips "op_version_set = 1" and imports, which only old files have.
void SkipBeginning(Lexer* lexer) {
  if (lexer->cur().kind == torch::jit::TK_IDENT && lexer->cur().text() == "op_version_set") {
    lexer->next();
    lexer->expect('=');
    lexer->expect(torch::jit::TK_NUMBER);
    lexer->expect(torch::jit::TK_NEWLINE);
  }
}

void SkipImports(Lexer* lexer) {
  while (lexer->nextIf(torch::jit::TK_IMPORT)) {
    do {
      lexer->expect(torch::jit::TK_IDENT);
    } while (lexer->nextIf('.'));
    lexer->expect(torch::jit::TK_NEWLINE);
  }
}

absl::Status CheckCode(const std::string& name, const std::string& code) {
  Parser parser(std::make_shared<Source>(code, name, /*starting_line_no=*/1));
  Lexer& lexer = parser.lexer();
  SkipBeginning(&lexer);
  for (;;) {
    SkipImports(&lexer);
    if (lexer.cur().kind == torch::jit::TK_EOF) return absl::OkStatus();
    RETURN_IF_ERROR(lexer.cur().kind == torch::jit::TK_CLASS_DEF
                        ? CheckClass(parser.parseClass())
                        : CheckDefaults(parser.parseFunction(/*is_method=*/false)));
  }
}

// Finds names of classes, which a pickle has in the form "module\nclass\n".
absl::Status CheckPickle(const std::string& name, const std::string& pickle) {
  if (!absl::StrContains(absl::StrReplaceAll(pickle, {{"\n", "."}}), "torch.classes.")) {
    return absl::OkStatus();
  }
  return Refused(absl::StrCat(name,
                              " holds an object of a class in C++ (torch.classes) with code "
                              "of its own"),
                 "save a module whose attributes are tensors, numbers, texts, lists, dictionaries "
                 "and modules");
}

}  // namespace

absl::Status CheckNothingRunsWhileLoading(PyTorchStreamReader* archive) {
  std::set<std::string> names;
  for (const std::string& name : archive->getAllRecords()) {
    const std::string lower = absl::AsciiStrToLower(name);
    if (!names.insert(lower).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "has two records '", Quotable(name),
          "' (capital letters do not count); expected one, as torch.jit.save writes it"));
    }
    // LibTorch lists only the beginning of a long name, but loads by the whole name.
    if (!archive->hasRecord(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("has a record whose name is too long: ", Quotable(name)));
    }
    if (lower == "model.json") {
      return absl::InvalidArgumentError(
          "has the format of an old PyTorch (model.json); expected that of a newer one: load it "
          "there, and save it again");
    }
    if (absl::EndsWith(lower, ".py")) RETURN_IF_ERROR(CheckCode(name, Text(archive, name)));
    if (lower == "data.pkl" || lower == "constants.pkl") {
      RETURN_IF_ERROR(CheckPickle(name, Text(archive, name)));
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::models
