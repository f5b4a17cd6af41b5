// The function of test_model.h as a model of units, for tests of every strategy. Two blocks have
// parameters; the other parameters are the root's own.
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

  // Returns the same as Loss(), but runs through the context.
  at::Tensor LossOf(models::ForwardContext& context, int rank, int64_t step, int micro_batch);
  // Makes later losses use, or not use, the parameter "unused".
  void Use(bool unused) { use_ = unused; }

  // Returns Parameters() in the order of MakeParameters().
  std::vector<models::Parameter> InOrder() const;
  // Returns the index in MakeParameters() of a parameter.
  static size_t OrderOf(const std::string& name);

 private:
  int micro_batch_ = 0;
  bool use_ = false;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_TEST_NET_H_
