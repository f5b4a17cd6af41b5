// Which parameters of a model are trained: the one owner of the rules and their version, of the
// mask in force, of the mask that this rank wants next, of what model code has changed without
// effect (trainable: {refresh: manual}), and of the requires_grad flags of the tensors.
//
// Between two changes all of these agree: the flags are the mask in force, which is what the rules
// say, and nothing else is wanted. A change has these steps:
//   Want(mask)         the ranks compare wanted_hash() in a roll call; nothing is changed yet
//   BringIntoForce()   the flags are set; called where the plan of training is made anew
//   Add(rules) or NameByParameters()   the rules say the same, as the next version
// Model code may flip flags between Want and BringIntoForce of nobody: FirstFlipped finds that out.
//
// Threading: the session's thread.
#ifndef MUSTER_WORKER_TRAIN_TRAINED_PARAMETERS_H_
#define MUSTER_WORKER_TRAIN_TRAINED_PARAMETERS_H_

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
  TrainedParameters& operator=(const TrainedParameters&) = delete;

  // ---- What is in force.
  const Mask& in_force() const { return in_force_; }
  bool any() const { return any_; }
  int64_t version() const { return trainability_.version(); }
  const std::vector<TrainableRule>& rules() const { return trainability_.rules(); }
  // As the model was made.
  const std::vector<Trainability::Parameter>& parameters() const {
    return trainability_.parameters();
  }
  const std::string& name(size_t index) const { return parameters()[index].name; }

  // ---- A change.
  // What would be trained with these rules behind the others. INVALID_ARGUMENT as Create.
  absl::StatusOr<Mask> With(const std::vector<TrainableRule>& rules) const {
    return trainability_.With(rules);
  }
  void Want(const Mask& mask);
  const Mask& wanted() const { return wanted_; }
  int64_t wanted_hash() const { return wanted_hash_; }
  // Index of the first parameter that is wanted otherwise than it is in force; -1: none.
  int64_t first_change() const { return first_change_; }
  // What is wanted is in force from here on. Gradients of what is frozen are dropped. Of parameters
  // that this changes, model code has nothing pending any more.
  void BringIntoForce();
  // The next version, with these rules, of which What With said is in force.
  absl::Status Add(const std::vector<TrainableRule>& rules) { return trainability_.Add(rules); }
  // The next version, with rules of single names that say what is in force; nothing where the rules
  // say so already.
  void NameByParameters();
  // What a checkpoint has, at the start of a session. Its mask is wanted then.
  void Restore(int64_t version, const std::vector<TrainableRule>& rules);

  // ---- What model code does.
  // Index of the first parameter whose flag is not the one in force; -1: none. Asked before and in
  // every step: 20 microseconds for 1000 parameters at most (bench/refresh:check).
  int64_t FirstFlipped() const;
  Mask Flags() const { return FlagsOf(tensors_); }
  // With `refresh: manual`: lets model code see its own flags, those that are pending.
  void ShowPending();
  // Puts the flags back to those in force; what model code changed is pending from now on. shown:
  // it saw what was pending, so that what is not changed any more is not pending either. True: what
  // is pending is not what it was.
  bool HoldBack(bool shown);
  // The names of what is pending, in the model's order.
  std::vector<std::string> PendingNames() const;
  // Of a checkpoint.
  void RestorePending(const std::vector<std::string>& names);
  // What would be in force with what is pending; nothing is pending any more.
  Mask TakePending();

 private:
  TrainedParameters(std::vector<models::Parameter> tensors, Trainability trainability);
  void SetFlags(const Mask& mask);

  const std::vector<models::Parameter> tensors_;
  // Where LibTorch keeps the flag of each, for FirstFlipped. It makes that object once, when a
  // tensor first requires a gradient; null: not before this was made.
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

#endif  // MUSTER_WORKER_TRAIN_TRAINED_PARAMETERS_H_
