#include "worker/models/select_units.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/glob/glob.h"

namespace muster::models {
namespace {

bool EndsInANumber(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);  // npos + 1 is 0
  return !last.empty() && last.find_first_not_of("0123456789") == std::string::npos;
}

class Selection {
 public:
  explicit Selection(const std::vector<std::string>& patterns)
      : patterns_(patterns), fits_(patterns.size()), blocks_(patterns.empty()) {
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (patterns[i] == kBlocks) blocks_ = fits_[i] = true;
    }
  }

  void Visit(const Unit& unit, bool in_block = false) {
    for (const auto& child : unit.children()) {
      const std::string& name = child->name();
      const bool has_parameters = !child->Parameters().empty();
      // A block contains no other block.
      const bool block = has_parameters && blocks_ && !in_block && EndsInANumber(name);
      if (has_parameters && (Fits(name) || block)) units_.push_back(child.get());
      if (has_parameters) names_.push_back(name);
      Visit(*child, in_block || block);
    }
  }

  absl::StatusOr<std::vector<const Unit*>> Result() && {
    std::vector<std::string> unfit;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (!fits_[i]) unfit.push_back(absl::StrCat("'", patterns_[i], "'"));
    }
    if (unfit.empty()) return std::move(units_);
    constexpr size_t kShown = 3;
    const size_t shown = std::min(kShown, names_.size());
    std::string units = absl::StrJoin(names_.begin(), names_.begin() + shown, ", ");
    if (names_.size() > shown) absl::StrAppend(&units, " and ", names_.size() - shown, " more");
    return absl::InvalidArgumentError(absl::StrCat(
        "no unit with parameters has a name that matches ", absl::StrJoin(unfit, ", "),
        units.empty() ? "; the model has no such units" : absl::StrCat("; units: ", units)));
  }

 private:
  bool Fits(const std::string& name) {
    bool any = false;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (patterns_[i] == kBlocks || !GlobMatches(patterns_[i], name)) continue;
      fits_[i] = any = true;
    }
    return any;
  }

  const std::vector<std::string>& patterns_;
  std::vector<bool> fits_;
  bool blocks_;
  std::vector<std::string> names_;  // names of all units with parameters
  std::vector<const Unit*> units_;
};

}  // namespace

absl::StatusOr<std::vector<const Unit*>> SelectUnits(const Unit& root,
                                                     const std::vector<std::string>& patterns) {
  Selection selection(patterns);
  selection.Visit(root);
  return std::move(selection).Result();
}

}  // namespace muster::models
