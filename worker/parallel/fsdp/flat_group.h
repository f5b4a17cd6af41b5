// Parameters of one FSDP unit in one flat tensor, the whole. The memory of the whole exists only
// between Gather and Free; this rank's slice of the whole always exists.
//
// The parameters' tensors stay the same objects and are views of the whole, whose storage is
// resized to zero bytes and back. When the whole is gathered again, tensors that autograd has saved
// have their values again (PyTorch's FSDP does the same). No version counter changes.
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
    // Free does not free the whole.
    bool resident = false;
    // The whole of a float32 group is bfloat16; its values are rounded from the slices.
    bool in_bfloat16 = false;
    // See FsdpOptions::values.
    std::function<at::Tensor(const at::Tensor& tensor, int64_t begin, int64_t end)> values;
    // This rank's slice, if memory for it exists already. `values` is not called then.
    at::Tensor slice;
  };

  // parameters: of the model. indices[i]: the index in `parameters` of specs[i]. group: its members
  // are indices of `specs`. label: for errors. Copies this rank's slice, unless options.slice is
  // given. Makes the parameters' tensors views of the whole, in the type of the whole; no values
  // are gathered yet. The communicator must outlive this object.
  FlatGroup(const std::vector<models::Parameter>& parameters, const std::vector<size_t>& indices,
            const std::vector<layout::ParameterSpec>& specs, const layout::Group& group,
            const Options& options, comm::Communicator* communicator, std::string label);
  // Gives the parameters' tensors the type of the slices again.
  ~FlatGroup();
  FlatGroup(const FlatGroup&) = delete;
  FlatGroup& operator=(const FlatGroup&) = delete;

  // Starts to gather the whole, unless it is gathered or in flight. A collective. Returns the bytes
  // of memory that the call has allocated.
  int64_t Gather(int64_t step);
  // Waits for Gather or GatherAgain.
  absl::Status Await();
  // Gathers a whole once more into the same memory, after slices have changed; does nothing if the
  // whole is not gathered. A collective, which Await waits for. Nothing may be in flight.
  void GatherAgain(int64_t step);
  // Frees the whole, unless it is resident; waits first for a gather in flight. After a failed
  // gather the memory stays allocated, because the communicator may still write to it. Returns the
  // bytes freed.
  int64_t Free();

  // Gathers the values in the type of the slices, even if the whole has another type. A collective.
  // Until ReleaseValues the parameters' tensors are views of these values.
  absl::Status GatherValues(int64_t step);
  // Keeps the values that were written into the tensors since GatherValues. Does nothing if
  // GatherValues was not called or failed.
  void ReleaseValues();

  const at::Tensor& slice() const { return slice_; }
  // The bytes of memory that Gather would allocate.
  int64_t bytes_to_gather() const { return whole_ ? 0 : whole_bytes_; }

 private:
  at::Tensor CopySlice(const std::vector<models::Parameter>& parameters,
                       const std::vector<size_t>& indices,
                       const std::vector<layout::ParameterSpec>& specs,
                       const Options& options) const;
  void Resize(int64_t bytes);
  // Starts to gather the slices into the whole, which has memory.
  void StartGather(int64_t step);
  // Returns views of `flat`, which must have memory, with the parameters' sizes.
  std::vector<at::Tensor> ViewsOf(const at::Tensor& flat) const;
  // Makes the parameters' tensors use the memory of `views`.
  void Show(const std::vector<at::Tensor>& views);

  comm::Communicator* const communicator_;
  const bool resident_;
  const std::string label_;
  const layout::Group group_;
  std::vector<at::Tensor> tensors_;  // of the group's members
  at::Tensor slice_;
  at::Tensor flat_;                // the whole
  std::vector<at::Tensor> views_;  // of the whole
  at::Tensor values_;              // between GatherValues and ReleaseValues
  int64_t whole_bytes_ = 0;
  bool whole_ = false;  // the whole is gathered, or its gather is in flight
  bool failed_ = false;
  std::unique_ptr<comm::Work> work_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_FLAT_GROUP_H_
