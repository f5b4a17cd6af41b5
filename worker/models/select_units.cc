#include "worker/models/select_units.h"

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
      : patterns_(patterns), fits_(patterns.size()) {}

  void Visit(const Unit& unit) {
    for (const auto& child : unit.children()) {
      const bool selected = !child->Parameters().empty() && Fits(child->name());
      if (selected) units_.push_back(child.get());
      // A block contains no other block.
      if (!selected || !patterns_.empty()) Visit(*child);
    }
  }

  absl::StatusOr<std::vector<const Unit*>> Result() && {
    std::vector<std::string> unfit;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (!fits_[i]) unfit.push_back(absl::StrCat("'", patterns_[i], "'"));
    }
    if (unfit.empty()) return std::move(units_);
    return absl::InvalidArgumentError(
        absl::StrCat("no unit with parameters is named as ", absl::StrJoin(unfit, ", ")));
  }

 private:
  bool Fits(const std::string& name) {
    if (patterns_.empty()) return EndsInANumber(name);
    bool any = false;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (!GlobMatches(patterns_[i], name)) continue;
      fits_[i] = any = true;
    }
    return any;
  }

  const std::vector<std::string>& patterns_;
  std::vector<bool> fits_;
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
