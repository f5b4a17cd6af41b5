// Parameters of one FSDP unit in one flat piece of memory: this rank's slice of it, always there,
// and the whole, which is there only between Gather and Free.
//
// The parameters' tensors stay the same objects, views of the whole's storage, which is resized to
// nothing and back: what autograd has saved of them sees the values again once they are gathered
// (PyTorch's FSDP does the same). No version counter moves.
//
// Threading: one thread.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_FLAT_GROUP_H_
#define MUSTER_WORKER_PARALLEL_FSDP_FLAT_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/layout/groups.h"
#include "worker/models/unit.h"

namespace muster::parallel {

class FlatGroup {
 public:
  struct Options {
    // Once gathered, the whole stays.
    bool resident = false;
    // The whole of a float32 group is bfloat16, rounded from the slices.
    bool in_bfloat16 = false;
    // As FsdpOptions'.
    std::function<at::Tensor(const at::Tensor& tensor)> values;
    // This rank's slice, where there is memory for it; `values` is not asked then.
    at::Tensor slice;
  };

  // parameters: of the model; indices[i]: which of them specs[i] is, of which `group` is made.
  // Copies this rank's slice, unless it is given, and makes the parameters' tensors, of the whole's
  // type then, views of the whole, which is not there yet. The communicator outlives this. label:
  // for errors.
  FlatGroup(const std::vector<models::Parameter>& parameters, const std::vector<size_t>& indices,
            const std::vector<layout::ParameterSpec>& specs, const layout::Group& group,
            const Options& options, comm::Communicator* communicator, std::string label);
  // The parameters' tensors have the slices' type then.
  ~FlatGroup();
  FlatGroup(const FlatGroup&) = delete;
  FlatGroup& operator=(const FlatGroup&) = delete;

  // A collective, unless the whole is there: begins to bring it here. Gives the bytes that it takes
  // more.
  int64_t Gather(int64_t step);
  // Waits for it.
  absl::Status Await();
  // Frees the whole, unless it is resident, and waits before where it is still on its way. Where it
  // did not arrive the memory stays until the communicator is gone. Gives the bytes freed.
  int64_t Free();

  // A collective: until Release the parameters' tensors are views of the values themselves, in the
  // slices' type, also where the whole is not.
  absl::Status GatherValues(int64_t step);
  // What was written into them is kept. Nothing without GatherValues.
  void ReleaseValues();

  const at::Tensor& slice() const { return slice_; }

 private:
  at::Tensor CopySlice(const std::vector<models::Parameter>& parameters,
                       const std::vector<size_t>& indices,
                       const std::vector<layout::ParameterSpec>& specs,
                       const Options& options) const;
  void Resize(int64_t bytes);
  // Views of `flat`, whose memory is there, with the parameters' sizes.
  std::vector<at::Tensor> ViewsOf(const at::Tensor& flat) const;
  // Makes them what the parameters' tensors show.
  void Show(const std::vector<at::Tensor>& views);

  comm::Communicator* const communicator_;
  const bool resident_;
  const std::string label_;
  const layout::Group group_;
  std::vector<at::Tensor> tensors_;  // of the group's members
  at::Tensor slice_;
  at::Tensor flat_;                // the whole
  std::vector<at::Tensor> views_;  // of it
  at::Tensor values_;              // between GatherValues and ReleaseValues
  int64_t whole_bytes_ = 0;
  bool whole_ = false;  // there, or on its way
  bool failed_ = false;
  std::unique_ptr<comm::Work> work_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_FLAT_GROUP_H_
