// The function of test_model.h as a model of units, for tests of every strategy: two blocks. The
// other parameters are the root's own.
#ifndef MUSTER_WORKER_PARALLEL_TEST_NET_H_
#define MUSTER_WORKER_PARALLEL_TEST_NET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/models/unit.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {

class TestNet : public models::Unit {
 public:
  TestNet();
  // x: 4 x 7. Returns the loss.
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext& context) override;

  // The same as Loss(), but run through the context.
  at::Tensor LossOf(models::ForwardContext& context, int rank, int64_t step, int micro_batch);
  // Whether the loss uses "unused" from now on.
  void Use(bool unused) { use_ = unused; }

  // Parameters() in the order of MakeParameters().
  std::vector<models::Parameter> InOrder() const;
  // Index in Parameters() -> index in MakeParameters().
  static size_t OrderOf(const std::string& name);

 private:
  int micro_batch_ = 0;
  bool use_ = false;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_TEST_NET_H_
