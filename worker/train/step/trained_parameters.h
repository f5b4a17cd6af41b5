// The set of trained parameters of a model. TrainedParameters alone owns:
// - the rules and their version;
// - the mask in force, and the mask that this rank wants next;
// - the changes of model code that are not in force (trainable: {refresh: manual});
// - the requires_grad flags of the tensors.
//
// Between two changes, the flags and the wanted mask equal the mask in force, which follows from
// the rules. A change has these steps:
//   Want(mask)         the ranks compare wanted_hash() in a roll call; nothing is changed yet
//   BringIntoForce()   the flags are set; called when a new plan of training is made
//   Add(rules) or NameByParameters()   the next version has rules that give the same mask
// The model's own code may change flags of the tensors at any time. FirstFlipped finds such a
// change.
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

// Returns requires_grad of each parameter.
Mask FlagsOf(const std::vector<models::Parameter>& parameters);

class TrainedParameters {
 public:
  // Makes version 1: the flags of the new model, changed by the rules of the job file. Sets the
  // flags. The tensors must stay the same objects while this object lives. INVALID_ARGUMENT names
  // the patterns that fit no parameter; no flag is changed.
  static absl::StatusOr<std::unique_ptr<TrainedParameters>> Create(
      std::vector<models::Parameter> parameters, const std::vector<TrainableRule>& rules);
  TrainedParameters(const TrainedParameters&) = delete;

  // ---- The trained parameters in force.
  const Mask& in_force() const { return in_force_; }
  bool any() const { return any_; }
  int64_t version() const { return trainability_.version(); }
  const std::vector<TrainableRule>& rules() const { return trainability_.rules(); }
  // The parameters with the flags of the new model.
  const std::vector<Trainability::Parameter>& parameters() const {
    return trainability_.parameters();
  }
  const std::string& name(size_t index) const { return parameters()[index].name; }

  // ---- A change.
  // Returns the mask after these rules are added to the others. INVALID_ARGUMENT as in Create.
  absl::StatusOr<Mask> With(const std::vector<TrainableRule>& rules) const {
    return trainability_.With(rules);
  }
  void Want(const Mask& mask);
  const Mask& wanted() const { return wanted_; }
  int64_t wanted_hash() const { return wanted_hash_; }
  // Index of the first parameter whose wanted flag differs from its flag in force; -1: none.
  int64_t first_change() const { return first_change_; }
  // Puts the wanted mask into force and drops the gradients of frozen parameters. A parameter with
  // a new flag is no longer pending.
  void BringIntoForce();
  // Makes the next version, with these rules added. Their mask, from With, is in force.
  absl::Status Add(const std::vector<TrainableRule>& rules) { return trainability_.Add(rules); }
  // Makes the next version, with rules that name single parameters and give the mask in force. Does
  // nothing if the rules already give this mask.
  void NameByParameters();
  // Takes the version and rules of a checkpoint, at the start. Their mask is then wanted.
  void Restore(int64_t version, const std::vector<TrainableRule>& rules);

  // ---- Flags that model code has changed.
  // Returns the index of the first parameter whose flag is not the flag in force; -1: none. Called
  // before and in every step: at most 20 microseconds for 1000 parameters (bench/refresh:check).
  int64_t FirstFlipped() const;
  Mask Flags() const { return FlagsOf(tensors_); }
  // Sets the pending flags, with `refresh: manual`, so that model code sees its own changes.
  void ShowPending();
  // Sets the flags back to those in force. The changes of model code become pending. `shown`: model
  // code saw the pending flags, so a change that model code took back is no longer pending. If
  // model code did not see them, its changes are added to the pending ones. Returns true if the
  // pending changes are different from before.
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
  // The object in which LibTorch keeps the flag of a tensor, for FirstFlipped. LibTorch makes the
  // object once, when the tensor first requires a gradient. Null: there was no such object when
  // TrainedParameters was made.
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
