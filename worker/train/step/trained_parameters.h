// Which parameters of a model are trained. TrainedParameters is the one owner of the rules and
// their version, of the mask in force, of the mask that this rank wants next, of the changes of
// model code that are not in force (trainable: {refresh: manual}), and of the requires_grad flags
// of the tensors.
//
// Between two changes all of these agree: the flags are the mask in force, which follows from the
// rules, and the wanted mask is the same. A change has these steps:
//   Want(mask)         the ranks compare wanted_hash() in a roll call; nothing is changed yet
//   BringIntoForce()   the flags are set; called when a new plan of training is made
//   Add(rules) or NameByParameters()   the next version has rules that give the same mask
// The model's own code may change flags of the tensors at any time: FirstFlipped finds that out.
//
// Threading: the session's thread.
#ifndef MUSTER_WORKER_TRAIN_STEP_TRAINED_PARAMETERS_H_
#define MUSTER_WORKER_TRAIN_STEP_TRAINED_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/trainability/trainability.h"
#include "worker/models/unit.h"

namespace muster::train {

// requires_grad of each parameter.
Mask FlagsOf(const std::vector<models::Parameter>& parameters);

class TrainedParameters {
 public:
  // Version 1: the flags that the model was made with, changed by the rules of the job file. Sets
  // the flags. The tensors stay the same objects for as long as this lives. INVALID_ARGUMENT names
  // the patterns that fit no parameter; then no flag is changed.
  static absl::StatusOr<std::unique_ptr<TrainedParameters>> Create(
      std::vector<models::Parameter> parameters, const std::vector<TrainableRule>& rules);
  TrainedParameters(const TrainedParameters&) = delete;

  // ---- What is in force.
  const Mask& in_force() const { return in_force_; }
  bool any() const { return any_; }
  int64_t version() const { return trainability_.version(); }
  const std::vector<TrainableRule>& rules() const { return trainability_.rules(); }
  // The parameters as the model was made.
  const std::vector<Trainability::Parameter>& parameters() const {
    return trainability_.parameters();
  }
  const std::string& name(size_t index) const { return parameters()[index].name; }

  // ---- A change.
  // The mask that follows if these rules are added after the others. INVALID_ARGUMENT as in Create.
  absl::StatusOr<Mask> With(const std::vector<TrainableRule>& rules) const {
    return trainability_.With(rules);
  }
  void Want(const Mask& mask);
  const Mask& wanted() const { return wanted_; }
  int64_t wanted_hash() const { return wanted_hash_; }
  // Index of the first parameter whose wanted flag differs from the one in force; -1: none.
  int64_t first_change() const { return first_change_; }
  // Puts the wanted mask into force. Gradients of frozen parameters are dropped. A parameter that
  // this changes is no longer pending.
  void BringIntoForce();
  // Makes the next version, with these rules added. The mask that With gave for them is in force.
  absl::Status Add(const std::vector<TrainableRule>& rules) { return trainability_.Add(rules); }
  // Makes the next version, with rules that name single parameters and give the mask in force. Does
  // nothing if the rules give it already.
  void NameByParameters();
  // Takes the version and rules of a checkpoint, at the start of a session. Their mask is wanted
  // then.
  void Restore(int64_t version, const std::vector<TrainableRule>& rules);

  // ---- What model code does.
  // Index of the first parameter whose flag is not the one in force; -1: none. Called before and in
  // every step: takes 20 microseconds for 1000 parameters at most (bench/refresh:check).
  int64_t FirstFlipped() const;
  Mask Flags() const { return FlagsOf(tensors_); }
  // With `refresh: manual`: sets the flags that are pending, so that model code sees the flags that
  // it set itself.
  void ShowPending();
  // Sets the flags back to those in force. What model code changed is pending from now on. `shown`:
  // model code saw the pending flags, so a change that it undid is no longer pending. Returns true
  // if the pending changes are not the same as before.
  bool HoldBack(bool shown);
  // The names of the pending parameters, in the model's order.
  std::vector<std::string> PendingNames() const;
  // Takes the pending parameters of a checkpoint.
  void RestorePending(const std::vector<std::string>& names);
  // Returns the mask in force with the pending changes made. Nothing is pending afterwards.
  Mask TakePending();

 private:
  TrainedParameters(std::vector<models::Parameter> tensors, Trainability trainability);

  const std::vector<models::Parameter> tensors_;
  // Where LibTorch keeps the flag of each tensor, for FirstFlipped. LibTorch makes that object
  // once, when the tensor first requires a gradient. Null: there was none when TrainedParameters
  // was made.
  struct Flag {
    const at::TensorImpl* tensor;
    const c10::AutogradMetaInterface* autograd;
  };
  std::vector<Flag> flags_;
  Trainability trainability_;
  Mask in_force_;
  bool any_ = false;
  Mask wanted_;
  int64_t wanted_hash_ = 0;
  int64_t first_change_ = -1;
  std::optional<Mask> pending_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_TRAINED_PARAMETERS_H_
